// What the network asks of a device: buffers, kernels by number, copies, and a second stream if there is one. Each
// build of `digits` is this interface over another part of CUDA's API; the network and the kernels are the same.
// A buffer is one allocation of the driver, made when the network needs it and given back as soon as it does not.
// One thread uses a backend. Errors: OutOfMemory, or a std::runtime_error that names the call and CUDA's error.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <unordered_map>

namespace digits {

#define DIGITS_KERNELS(K)                                                                                              \
  K(gather_rows) K(gather_labels) K(matmul) K(matmul_transposed) K(layer_gradient) K(sum_partials) K(bias_add)         \
  K(bias_relu) K(relu_backward) K(residual_add) K(norm_forward) K(norm_backward) K(softmax_cross_entropy) K(mean_loss) \
  K(count_correct) K(sgd_update) K(momentum_update) K(adam_update)
enum class Kernel {
#define K(name) name,
  DIGITS_KERNELS(K)
#undef K
  count
};

struct Grid { unsigned x, y, threads; };

struct OutOfMemory : std::runtime_error {
  OutOfMemory(size_t wanted, size_t live)
      : std::runtime_error("out of device memory: " + std::to_string(wanted) + " bytes wanted, " + std::to_string(live) + " live") {}
};

class Backend {
 public:
  virtual ~Backend() = default;

  // A new buffer; its contents are undefined.
  virtual void* allocate(size_t bytes) = 0;
  // Given back once the work submitted so far that uses it has completed.
  virtual void release(void* buffer) = 0;
  // What the next launch names, for who keeps a list.
  virtual void uses(std::initializer_list<const void*>) {}
  virtual void launch(Kernel kernel, Grid grid, void** arguments) = 0;
  virtual void zero(void* to, size_t bytes) = 0;
  // `from` may be changed as soon as this returns.
  virtual void upload(void* to, const void* from, size_t bytes) = 0;
  // Waits for the work submitted so far.
  virtual void download(void* to, const void* from, size_t bytes) = 0;

  // Work between fork() and main() may run beside what follows; join() orders it before what follows.
  virtual void fork() {}
  virtual void main() {}
  virtual void join() {}
  // One training step: the same launches on the same buffers each time it is called.
  virtual void step(const std::function<void()>& work) { work(); }

  // Bytes that the device's allocator was asked for and has not got back, now and at the most.
  size_t live() const { return live_; }
  size_t peak() const { return peak_; }

 protected:
  void account(void* buffer, size_t bytes) {
    sizes_[buffer] = bytes;
    live_ += bytes;
    if (live_ > peak_) peak_ = live_;
  }
  void unaccount(void* buffer) {
    auto found = sizes_.find(buffer);
    if (found == sizes_.end()) return;  // freed again after a free that failed
    live_ -= found->second;
    sizes_.erase(found);
  }

 private:
  std::unordered_map<void*, size_t> sizes_;
  size_t live_ = 0, peak_ = 0;
};

// The build's own backend.
std::unique_ptr<Backend> make_backend();
// The training runs in `body`; the per-thread-stream build calls it from a thread of its own.
int run_in_thread(const std::function<int()>& body);

}  // namespace digits
