// Forward, backward and update in terms of Backend (network.hpp). The order of launches, allocations and releases is
// the same in every step: the graph build captures one and replays it.
#include "tests/workloads/digits/network.hpp"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace digits {
namespace {

constexpr int pixels = 64, classes = 10, head_columns = 12;  // columns in multiples of 4; the last two stay unused
constexpr unsigned block_threads = 128;
constexpr int chunk_rows = 128;
constexpr int hyper_count = 6;

uint64_t next_random(uint64_t* state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

}  // namespace

// A kernel's argument as a buffer; null for a number.
template <class A>
static const void* buffer(A argument) {
  if constexpr (std::is_pointer_v<A>) return argument;
  else return nullptr;
}

template <class... A>
void Network::run_chunked(Kernel kernel, size_t threads, int chunks, A... arguments) {
  void* list[] = {&arguments...};
  backend_.uses({buffer(arguments)...});
  backend_.launch(kernel, {static_cast<unsigned>((threads + block_threads - 1) / block_threads), static_cast<unsigned>(chunks), block_threads}, list);
}

template <class... A>
void Network::run(Kernel kernel, size_t threads, A... arguments) {
  run_chunked(kernel, threads, 1, arguments...);
}

float* Network::floats(size_t count) { return static_cast<float*>(backend_.allocate(count * sizeof(float))); }

// Frees come one at a time, or late and many at once.
void Network::release(void* p) {
  late_.push_back(p);
  if (late_.size() <= static_cast<size_t>(shape_.late_frees)) return;
  for (void* each : late_) backend_.release(each);
  late_.clear();
}

// The images of a step are done with: freed at once, or when those of a later step were made.
void Network::release_input(float* input) {
  if (!shape_.hold) release(input);
}

Network::Network(Backend& backend, const Shape& shape, uint64_t seed)
    : backend_(backend), shape_(shape), scale_(1.0f / std::sqrt(static_cast<float>(shape.depth))) {
  uint64_t random = seed;
  layers_.push_back(make_layer(pixels, shape.width, &random));
  for (int i = 0; i < shape.depth - 2; i++) layers_.push_back(make_layer(shape.width, shape.width, &random));
  layers_.push_back(make_layer(shape.width, head_columns, &random));
  for (int i = 1; i < shape.depth - 1; i++) blocks_.push_back(i);
  hyper_ = floats(hyper_count);
  loss_ = floats(1);
  correct_ = static_cast<int*>(backend_.allocate(sizeof(int)));
  index_ = static_cast<int*>(backend_.allocate(shape.batch * sizeof(int)));
  batch_labels_ = static_cast<int*>(backend_.allocate(shape.batch * sizeof(int)));
}

Network::~Network() {
  try {
    for (Layer& l : layers_)
      for (float* p : {l.weights, l.gradient, l.first, l.second})
        if (p) backend_.release(p);
    for (void* p : {static_cast<void*>(images_), static_cast<void*>(labels_), static_cast<void*>(hyper_), static_cast<void*>(loss_),
                    static_cast<void*>(correct_), static_cast<void*>(index_), static_cast<void*>(batch_labels_)})
      if (p) backend_.release(p);
    for (float* p : inputs_) backend_.release(p);
    for (void* p : late_) backend_.release(p);
  } catch (const std::exception&) {
    // A device that failed earlier says so again here; the first report is the one that counts.
  }
}

// Weights and bias in one buffer: [k x n | n], uniform in +-sqrt(6 / k), bias 0; optimiser state 0.
Network::Layer Network::make_layer(int k, int n, uint64_t* random) {
  const size_t count = static_cast<size_t>(k) * n + n;
  std::vector<float> values(count, 0.0f);
  const float bound = std::sqrt(6.0f / static_cast<float>(k));
  for (int i = 0; i < k * n; i++) values[i] = bound * (static_cast<float>(next_random(random) >> 40) / 8388608.0f - 1.0f);
  Layer layer{k, n, floats(count), nullptr, nullptr, nullptr};
  backend_.upload(layer.weights, values.data(), count * sizeof(float));
  auto state = [&] { float* p = floats(count); backend_.zero(p, count * sizeof(float)); return p; };
  if (shape_.optimiser != Optimiser::sgd) layer.first = state();
  if (shape_.optimiser == Optimiser::adam) layer.second = state();
  return layer;
}

void Network::load(const std::vector<float>& images, const std::vector<int>& labels) {
  images_ = floats(images.size());
  labels_ = static_cast<int*>(backend_.allocate(labels.size() * sizeof(int)));
  backend_.upload(images_, images.data(), images.size() * sizeof(float));
  backend_.upload(labels_, labels.data(), labels.size() * sizeof(int));
  if (shape_.hold) host_images_ = images;
}

void Network::upload_index(const std::vector<int>& index) {
  if (shape_.hold) upload_images(index);
  backend_.upload(index_, index.data(), index.size() * sizeof(int));
}

// As `x = to_device(batch)` does in a loop: the name takes the new ones, and then lets those before them go.
void Network::upload_images(const std::vector<int>& index) {
  std::vector<float> rows;
  for (const int i : index) rows.insert(rows.end(), host_images_.begin() + i * pixels, host_images_.begin() + (i + 1) * pixels);
  inputs_.push_back(floats(rows.size()));
  backend_.upload(inputs_.back(), rows.data(), rows.size() * sizeof(float));
  for (; inputs_.size() > static_cast<size_t>(shape_.hold); inputs_.pop_front()) release(inputs_.front());
}

// The logits of the current batch; with `keep`, what backward() needs is left in kept_.
float* Network::forward(bool keep) {
  const int m = shape_.batch, width = shape_.width, count = m * width;
  float* input = shape_.hold ? inputs_.back() : floats(static_cast<size_t>(m) * pixels);
  if (!shape_.hold) run(Kernel::gather_rows, m * pixels, images_, index_, input, m, pixels);
  run(Kernel::gather_labels, m, labels_, index_, batch_labels_, m);

  Layer& stem = layers_.front();
  float* z = floats(count);
  run(Kernel::matmul, count / 16, input, stem.weights, z, m, pixels, width);
  float* x = floats(count);
  run(Kernel::bias_add, count, z, stem.weights + pixels * width, x, count, width);
  release(z);
  if (keep) kept_.push_back({input, nullptr, nullptr, nullptr});
  else release_input(input);

  for (int i : blocks_) {
    const Layer& layer = layers_[i];
    Kept block{x, floats(count), nullptr, floats(2 * m)};
    run(Kernel::norm_forward, m, x, block.normal, block.stats, m, width);
    z = floats(count);
    run(Kernel::matmul, count / 16, block.normal, layer.weights, z, m, width, width);
    block.activation = floats(count);
    run(Kernel::bias_relu, count, z, layer.weights + width * width, block.activation, count, width);
    release(z);
    float* next = floats(count);
    run(Kernel::residual_add, count, x, block.activation, scale_, next, count);
    if (keep) kept_.push_back(block);
    else for (float* p : {block.x, block.normal, block.activation, block.stats}) release(p);
    x = next;
  }

  Layer& head = layers_.back();
  Kept last{x, floats(count), nullptr, floats(2 * m)};
  run(Kernel::norm_forward, m, x, last.normal, last.stats, m, width);
  z = floats(m * head_columns);
  run(Kernel::matmul, m * head_columns / 16, last.normal, head.weights, z, m, width, head_columns);
  float* logits = floats(m * head_columns);
  run(Kernel::bias_add, m * head_columns, z, head.weights + width * head_columns, logits, m * head_columns, head_columns);
  release(z);
  if (keep) kept_.push_back(last);
  else for (float* p : {last.x, last.normal, last.stats}) release(p);
  return logits;
}

// Beside the main stream where the backend has a second one: nothing needs a gradient before the update.
void Network::gradients(Layer& layer, const float* x, const float* dy) {
  const int m = shape_.batch, chunks = (m + chunk_rows - 1) / chunk_rows, count = layer.k * layer.n + layer.n;
  float* const before = layer.gradient;
  layer.gradient = floats(count);
  float* partial = floats(static_cast<size_t>(chunks) * count);
  backend_.fork();
  run_chunked(Kernel::layer_gradient, layer.k * layer.n / 16 + layer.n, chunks, x, dy, partial, m, layer.k, layer.n, chunk_rows);
  run(Kernel::sum_partials, count, partial, layer.gradient, count, chunks);
  if (before) {
    float* const sum = floats(count);
    run(Kernel::residual_add, count, before, layer.gradient, 1.0f, sum, count);
    for (float* p : {before, layer.gradient}) release(p);
    layer.gradient = sum;
  }
  backend_.main();
  release(partial);
}

// Takes the gradient of the logits, releases it and everything in kept_.
void Network::backward(float* gradient) {
  const int m = shape_.batch, width = shape_.width, count = m * width;
  auto take = [&] { Kept k = kept_.back(); kept_.pop_back(); return k; };

  Kept kept = take();
  gradients(layers_.back(), kept.normal, gradient);
  float* normal_gradient = floats(count);
  run(Kernel::matmul_transposed, count / 16, gradient, layers_.back().weights, normal_gradient, m, head_columns, width);
  float* g = floats(count);
  run(Kernel::norm_backward, m, normal_gradient, kept.x, kept.stats, static_cast<float*>(nullptr), g, m, width);
  for (float* p : {gradient, kept.normal, normal_gradient, kept.x, kept.stats}) release(p);

  for (auto i = blocks_.rbegin(); i != blocks_.rend(); ++i) {
    Layer& layer = layers_[*i];
    kept = take();
    float* dz = floats(count);
    run(Kernel::relu_backward, count, g, kept.activation, scale_, dz, count);
    release(kept.activation);
    gradients(layer, kept.normal, dz);
    normal_gradient = floats(count);
    run(Kernel::matmul_transposed, count / 16, dz, layer.weights, normal_gradient, m, width, width);
    release(kept.normal);
    release(dz);
    float* next = floats(count);
    run(Kernel::norm_backward, m, normal_gradient, kept.x, kept.stats, g, next, m, width);
    for (float* p : {normal_gradient, kept.x, kept.stats, g}) release(p);
    g = next;
  }

  kept = take();
  gradients(layers_.front(), kept.x, g);
  release_input(kept.x);
  release(g);
  backend_.join();
}

void Network::update(Layer& layer) {
  const int count = layer.k * layer.n + layer.n;
  switch (shape_.optimiser) {
    case Optimiser::sgd: run(Kernel::sgd_update, count, layer.weights, layer.gradient, hyper_, count); break;
    case Optimiser::momentum: run(Kernel::momentum_update, count, layer.weights, layer.gradient, layer.first, hyper_, count); break;
    case Optimiser::adam: run(Kernel::adam_update, count, layer.weights, layer.gradient, layer.first, layer.second, hyper_, count); break;
  }
  release(layer.gradient);
  layer.gradient = nullptr;
}

void Network::begin_step(float rate, int step) {
  const float beta1 = 0.9f, beta2 = 0.999f;
  const float hyper[hyper_count] = {rate, beta1, beta2, 1e-8f, static_cast<float>(1.0 - std::pow(0.9, step)),
                                    static_cast<float>(1.0 - std::pow(0.999, step))};
  backend_.upload(hyper_, hyper, sizeof hyper);
}

// Of the batch that was uploaded.
void Network::forward_and_backward() {
  const int m = shape_.batch;
  float* logits = forward(true);
  float* gradient = floats(m * head_columns);
  float* row_loss = floats(m);
  run(Kernel::softmax_cross_entropy, m, logits, batch_labels_, gradient, row_loss, m, head_columns, classes);
  float* out = loss_;
  int rows = m;
  void* list[] = {&row_loss, &out, &rows};
  backend_.uses({row_loss, out});
  backend_.launch(Kernel::mean_loss, {1, 1, 256}, list);
  release(row_loss);
  release(logits);
  backward(gradient);
}

float Network::train(const std::vector<int>& index, float rate, int step) {
  const int whole = shape_.batch;
  shape_.batch = static_cast<int>(index.size());
  upload_index(index);
  begin_step(rate, step);
  backend_.step([&] {
    forward_and_backward();
    for (Layer& layer : layers_)
      if (layer.gradient) update(layer);
  });
  shape_.batch = whole;
  float loss;
  backend_.download(&loss, loss_, sizeof loss);
  return loss;
}

float Network::train_accumulated(const std::vector<std::vector<int>>& batches, float rate, int step) {
  begin_step(rate, step);
  for (const std::vector<int>& index : batches) {
    upload_index(index);
    forward_and_backward();
  }
  for (Layer& layer : layers_)
    if (layer.gradient) update(layer);
  float loss;
  backend_.download(&loss, loss_, sizeof loss);
  return loss;
}

int Network::correct(const std::vector<int>& index) {
  int total = 0;
  for (size_t first = 0; first < index.size(); first += shape_.batch) {
    const int valid = static_cast<int>(std::min<size_t>(shape_.batch, index.size() - first));
    std::vector<int> rows(shape_.batch);
    for (int i = 0; i < shape_.batch; i++) rows[i] = index[first + i % valid];
    upload_index(rows);
    backend_.zero(correct_, sizeof(int));
    float* logits = forward(false);
    run(Kernel::count_correct, valid, logits, batch_labels_, correct_, valid, head_columns, classes);
    release(logits);
    int right;
    backend_.download(&right, correct_, sizeof right);
    total += right;
  }
  return total;
}

uint64_t Network::parameter_hash() {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const Layer& l : layers_) {
    std::vector<uint32_t> words(static_cast<size_t>(l.k) * l.n + l.n);
    backend_.download(words.data(), l.weights, words.size() * sizeof(float));
    for (uint32_t w : words)
      for (int b = 0; b < 4; b++) hash = (hash ^ ((w >> (8 * b)) & 255)) * 0x100000001b3ull;
  }
  return hash;
}

}  // namespace digits
