"""Files of curves, trees and networks in space."""
