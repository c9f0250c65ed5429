// The network: stem (64 -> width), depth - 2 residual blocks x + a relu(norm(x) w + b) with a = 1 / sqrt(depth), head
// norm(x) w + b over ten classes; softmax cross entropy. Pre-normalised and scaled so, it trains at 200 and at 1,000
// layers. What the backward pass needs (x, norm(x), relu output, statistics: three batch x width matrices a block)
// stays on the device until that block's backward pass has used it, each in a buffer of its own, as a framework does.
#pragma once
#include "tests/workloads/digits/backend.hpp"
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace digits {

enum class Optimiser { sgd, momentum, adam };

struct Shape {
  int depth = 200;   // layers with weights, 2 or more
  int width = 32;    // a multiple of 4
  int batch = 1024;  // a multiple of 4
  Optimiser optimiser = Optimiser::adam;
  int hold = 0;        // the images of a step come from the host, and go when those of so many steps later came; 0: gathered on the device, and gone with the step
  int late_frees = 0;  // so many frees wait for the next one, which frees them all
};

class Network {
 public:
  Network(Backend& backend, const Shape& shape, uint64_t seed);
  ~Network();

  // Places the data set on the device: images of 64 floats, labels.
  void load(const std::vector<float>& images, const std::vector<int>& labels);
  // One optimiser step on the images named by `index` (a multiple of 4, at most the batch); the mean loss before the step.
  float train(const std::vector<int>& index, float rate, int step);
  // The same on the gradients of several batches together; the mean loss of the last one.
  float train_accumulated(const std::vector<std::vector<int>>& batches, float rate, int step);
  // The blocks between stem and head that the next steps use, ascending, from 1 to depth - 2. All of them at first.
  void use_blocks(std::vector<int> blocks) { blocks_ = std::move(blocks); }
  // How many of the images named by `index` are classified correctly.
  int correct(const std::vector<int>& index);
  // FNV-1a over all bits of all parameters.
  uint64_t parameter_hash();

 private:
  struct Layer { int k, n; float *weights, *gradient, *first, *second; };
  // What a block keeps between its forward and its backward pass.
  struct Kept { float *x, *normal, *activation, *stats; };

  float* floats(size_t count);
  void release(void* p);
  void release_input(float* input);
  Layer make_layer(int k, int n, uint64_t* random);
  void upload_images(const std::vector<int>& index);
  void upload_index(const std::vector<int>& index);
  float* forward(bool keep);
  void backward(float* gradient);
  void forward_and_backward();
  void begin_step(float rate, int step);
  void gradients(Layer& layer, const float* x, const float* dy);
  void update(Layer& layer);
  template <class... A> void run(Kernel kernel, size_t threads, A... arguments);
  template <class... A> void run_chunked(Kernel kernel, size_t threads, int chunks, A... arguments);

  Backend& backend_;
  Shape shape_;
  float scale_;
  std::vector<Layer> layers_;
  std::vector<Kept> kept_;
  std::vector<int> blocks_;
  std::deque<float*> inputs_;
  std::vector<float> host_images_;
  std::vector<void*> late_;
  float *images_ = nullptr, *hyper_ = nullptr, *loss_ = nullptr, *logits_ = nullptr;
  int *labels_ = nullptr, *index_ = nullptr, *batch_labels_ = nullptr, *correct_ = nullptr;
};

}  // namespace digits
