// The builds on CUDA's runtime API. One source, chosen by how it is compiled:
//   (nothing)                             default stream, cudaMalloc and cudaFree
//   CUDA_API_PER_THREAD_DEFAULT_STREAM    the same on the per-thread default stream of a thread of its own
//   DIGITS_STREAMS                        weight gradients on a second stream, ordered by events
//   DIGITS_ASYNC                          cudaMallocAsync and cudaFreeAsync on a stream
//   DIGITS_GRAPH                          a step is captured once and replayed as a graph
#include "tests/workloads/digits/backend.hpp"
#include <cuda_runtime_api.h>
#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

// The kernels' host stubs (kernels.cu).
extern "C" {
#define K(name) void name();
DIGITS_KERNELS(K)
#undef K
}

namespace digits {
namespace {

const void* const kernels[] = {
#define K(name) reinterpret_cast<const void*>(&::name),
    DIGITS_KERNELS(K)
#undef K
};

void check(cudaError_t e, const char* call) {
  if (e != cudaSuccess) throw std::runtime_error(std::string(call) + ": " + cudaGetErrorName(e) + " (" + cudaGetErrorString(e) + ")");
}
#define CHECK(call) check(call, #call)

// Pinned memory that copies are made from. A piece is used again only after the stream has passed it.
class Staging {
 public:
  explicit Staging(cudaStream_t stream) : stream_(stream) { CHECK(cudaHostAlloc(reinterpret_cast<void**>(&bytes_), size, cudaHostAllocDefault)); }
  ~Staging() { cudaFreeHost(bytes_); }
  void copy(void* to, const void* from, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
      const size_t part = std::min(bytes - done, size);
      if (used_ + part > size) {
        CHECK(cudaStreamSynchronize(stream_));
        used_ = 0;
      }
      memcpy(bytes_ + used_, static_cast<const char*>(from) + done, part);
      CHECK(cudaMemcpyAsync(static_cast<char*>(to) + done, bytes_ + used_, part, cudaMemcpyHostToDevice, stream_));
      used_ += (part + 255) / 256 * 256;
      done += part;
    }
  }

 private:
  static constexpr size_t size = 1 << 20;
  cudaStream_t stream_;
  char* bytes_ = nullptr;
  size_t used_ = 0;
};

// On the default stream, with blocking copies: the plainest program.
class Plain : public Backend {
 public:
  void* allocate(size_t bytes) override {
    void* p = nullptr;
    const cudaError_t e = cudaMalloc(&p, bytes);
    if (e == cudaErrorMemoryAllocation) throw OutOfMemory(bytes, live());
    check(e, "cudaMalloc");
    account(p, bytes);
    return p;
  }
  void release(void* p) override {
    unaccount(p);
    CHECK(cudaFree(p));
  }
  void launch(Kernel kernel, Grid g, void** arguments) override {
    CHECK(cudaLaunchKernel(kernels[static_cast<int>(kernel)], dim3(g.x, g.y), dim3(g.threads), arguments, 0, stream()));
  }
  void zero(void* to, size_t bytes) override { CHECK(cudaMemset(to, 0, bytes)); }
  void upload(void* to, const void* from, size_t bytes) override { CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice)); }
  void download(void* to, const void* from, size_t bytes) override { CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost)); }

 protected:
  virtual cudaStream_t stream() { return nullptr; }
};

// On a stream of its own, with copies from and to pinned memory.
class Streamed : public Plain {
 public:
  Streamed() {
    CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    staging_ = std::make_unique<Staging>(stream_);
  }
  ~Streamed() override {
    cudaStreamSynchronize(stream_);
    staging_.reset();
    cudaStreamDestroy(stream_);
  }
  void zero(void* to, size_t bytes) override { CHECK(cudaMemsetAsync(to, 0, bytes, stream_)); }
  void upload(void* to, const void* from, size_t bytes) override { staging_->copy(to, from, bytes); }
  void download(void* to, const void* from, size_t bytes) override {
    CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_));
    CHECK(cudaStreamSynchronize(stream_));
  }

 protected:
  cudaStream_t stream() override { return stream_; }
  cudaStream_t stream_ = nullptr;

 private:
  std::unique_ptr<Staging> staging_;
};

#if defined(DIGITS_STREAMS)
class TwoStreams : public Streamed {
 public:
  TwoStreams() {
    CHECK(cudaStreamCreateWithFlags(&side_, cudaStreamNonBlocking));
    for (cudaEvent_t* e : {&forked_, &joined_}) CHECK(cudaEventCreateWithFlags(e, cudaEventDisableTiming));
  }
  ~TwoStreams() override {
    for (cudaEvent_t e : {forked_, joined_}) cudaEventDestroy(e);
    cudaStreamSynchronize(side_);
    cudaStreamDestroy(side_);
  }
  void fork() override {
    CHECK(cudaEventRecord(forked_, stream_));
    CHECK(cudaStreamWaitEvent(side_, forked_, 0));
    aside_ = true;
  }
  void main() override { aside_ = false; }
  void join() override {
    CHECK(cudaEventRecord(joined_, side_));
    CHECK(cudaStreamWaitEvent(stream_, joined_, 0));
  }

 protected:
  cudaStream_t stream() override { return aside_ ? side_ : stream_; }

 private:
  cudaStream_t side_ = nullptr;
  cudaEvent_t forked_ = nullptr, joined_ = nullptr;
  bool aside_ = false;
};
using Chosen = TwoStreams;

#elif defined(DIGITS_ASYNC)
class StreamOrdered : public Streamed {
 public:
  void* allocate(size_t bytes) override {
    void* p = nullptr;
    const cudaError_t e = cudaMallocAsync(&p, bytes, stream_);
    if (e == cudaErrorMemoryAllocation) throw OutOfMemory(bytes, live());
    check(e, "cudaMallocAsync");
    account(p, bytes);
    return p;
  }
  void release(void* p) override {
    unaccount(p);
    CHECK(cudaFreeAsync(p, stream_));
  }
};
using Chosen = StreamOrdered;

#elif defined(DIGITS_GRAPH)
// A captured step may not allocate, and its addresses are frozen: buffers given back are kept for the next request of
// their size. The first step runs as it is and leaves every buffer that a step needs; the second is captured.
class Captured : public Streamed {
 public:
  ~Captured() override {
    if (exec_) cudaGraphExecDestroy(exec_);
    for (auto& [bytes, list] : free_)
      for (void* p : list) Streamed::release(p);
  }
  void* allocate(size_t bytes) override {
    auto& list = free_[bytes];
    void* p;
    if (list.empty()) {
      p = Streamed::allocate(bytes);
    } else {
      p = list.back();
      list.pop_back();
    }
    sizes_[p] = bytes;
    return p;
  }
  void release(void* p) override { free_[sizes_[p]].push_back(p); }
  void step(const std::function<void()>& work) override {
    if (steps_++ == 0) return work();
    if (!exec_) {
      cudaGraph_t graph;
      CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal));
      work();
      CHECK(cudaStreamEndCapture(stream_, &graph));
      CHECK(cudaGraphInstantiate(&exec_, graph, 0));
      CHECK(cudaGraphDestroy(graph));
    }
    CHECK(cudaGraphLaunch(exec_, stream_));
  }

 private:
  std::map<size_t, std::vector<void*>> free_;
  std::unordered_map<void*, size_t> sizes_;
  cudaGraphExec_t exec_ = nullptr;
  long steps_ = 0;
};
using Chosen = Captured;

#else
using Chosen = Plain;
#endif

}  // namespace

std::unique_ptr<Backend> make_backend() { return std::make_unique<Chosen>(); }

int run_in_thread(const std::function<int()>& body) {
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
  int result = 0;
  std::thread([&] { result = body(); }).join();
  return result;
#else
  return body();
#endif
}

}  // namespace digits
