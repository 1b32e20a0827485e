"""Machine code for the CPU: how kernels are written, compiled and run on threads."""
