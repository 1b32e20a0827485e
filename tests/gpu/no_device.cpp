// A CUDA device that is not there: streams, events and hooks that do nothing, so that autograd's engine runs on tensors
// that say that they are on cuda:0.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace {
const c10::Device here(c10::DeviceType::CUDA, 0);
const c10::Stream stream(c10::Stream::DEFAULT, here);

struct Guard final : public c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA> {
  c10::Device exchangeDevice(c10::Device) const override { return here; }
  c10::Device getDevice() const override { return here; }
  c10::Stream getStream(c10::Device) const noexcept override { return stream; }
  c10::Stream getDefaultStream(c10::Device) const override { return stream; }
  c10::Stream getNewStream(c10::Device, int) const override { return stream; }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return stream; }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return stream; }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeEvent(void*) const override {}
  void synchronizeDevice(const c10::DeviceIndex) const override {}
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
};
} // namespace
C10_REGISTER_GUARD_IMPL(CUDA, Guard)

namespace at {
struct CUDAHooks final : public CUDAHooksInterface {
  explicit CUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  std::string showConfig() const override { return ""; }
  bool hasCUDA() const override { return true; }
  bool isAvailable() const override { return true; }
  bool isBuilt() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex current_device() const override { return 0; }
  DeviceIndex getCurrentDevice() const override { return 0; }
};
REGISTER_CUDA_HOOKS(CUDAHooks)
} // namespace at
