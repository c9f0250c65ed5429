// `digits`: trains an ultra-deep residual network on the handwritten digits that scikit-learn ships, and prints every
// loss with all its bits, so that two runs can be compared by comparing their output. What is printed to standard
// output depends on the options and the device only, never on the build, the memory or the schedule.
// Exit codes: 0; 1 a CUDA error; 2 bad usage; 3 out of device memory.
#include "tests/workloads/digits/listing.hpp"
#include "tests/workloads/digits/network.hpp"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>

asm(R"(
  .section .rodata
  .global digits_data
digits_data:
  .incbin "tests/workloads/digits/digits.bin"
  .previous
)");
extern "C" const unsigned char digits_data[];

namespace digits {
namespace {

constexpr int image_count = 1797, train_count = 1437, pixels = 64;

const char usage[] =
    "usage: digits [options]\n"
    "  --depth N        layers with weights, from 2 (200)\n"
    "  --width N        columns of a layer, a multiple of 4 (32)\n"
    "  --batch N        images of a step, a multiple of 4 (1024)\n"
    "  --optimiser O    sgd, momentum or adam (adam)\n"
    "  --lr X           learning rate (0.5 for sgd, 0.1 for momentum, 0.006 for adam)\n"
    "  --iterations N   steps (60)\n"
    "  --epochs N       the same in passes over the training images\n"
    "  --seed N         of weights and batches (1)\n"
    "  --evaluate N     count the right answers on the test images after every N steps\n"
    "  --last N,B       every N-th step has a batch of B\n"
    "  --first N,B      the first N steps have a batch of B\n"
    "  --accumulate N   a step is on the gradients of N batches\n"
    "  --models N,T     N networks that take turns of T steps\n"
    "  --random-depth N each step uses a random choice of N sets of blocks\n"
    "  --hold N         the images of a step come from the host, and are freed when those of N steps later came\n"
    "  --late-frees N   N frees wait for the next one, which frees them all\n"
    "                   (none of these eight in the build with graphs, whose steps are all alike)\n"
    "  --list FILE      write down what the network asks of the device (listing.hpp)\n"
    "  --report-peak    print the peak of the program's own live device bytes\n";

struct Options {
  Shape shape;
  float rate = 0;
  long iterations = 60, epochs = 0;
  uint64_t seed = 1;
  long evaluate = 0, last_every = 0, last_batch = 0, first = 0, first_batch = 0, accumulate = 1, models = 1, turn = 1, depths = 0;
  bool report_peak = false;
  std::string list;
};

[[noreturn]] void refuse(const std::string& why) {
  fprintf(stderr, "digits: %s\n%s", why.c_str(), usage);
  exit(2);
}

long whole(const char* option, const char* text, long least, long most) {
  char* end;
  long v = strtol(text, &end, 10);
  if (*end || end == text || v < least || v > most)
    refuse(std::string(option) + " needs a whole number from " + std::to_string(least) + " to " + std::to_string(most) + ", not '" + text + "'");
  return v;
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; i++) {
    const std::string name = argv[i];
    if (name == "--help") { fputs(usage, stdout); exit(0); }
    if (name == "--report-peak") { o.report_peak = true; continue; }
    if (i + 1 == argc) refuse("'" + name + "' is unknown, or its value is missing");
    const char* value = argv[++i];
    const char* n = name.c_str();
    if (name == "--depth") o.shape.depth = whole(n, value, 2, 100000);
    else if (name == "--width") o.shape.width = whole(n, value, 4, 8192);
    else if (name == "--batch") o.shape.batch = whole(n, value, 4, 65536);
    else if (name == "--iterations") o.iterations = whole(n, value, 1, 1000000);
    else if (name == "--epochs") o.epochs = whole(n, value, 1, 1000000);
    else if (name == "--seed") o.seed = whole(n, value, 0, 1l << 62);
    else if (name == "--evaluate") o.evaluate = whole(n, value, 1, 1000000);
    else if (name == "--accumulate") o.accumulate = whole(n, value, 1, 1000);
    else if (name == "--hold") o.shape.hold = whole(n, value, 0, 1000);
    else if (name == "--late-frees") o.shape.late_frees = whole(n, value, 0, 1000000);
    else if (name == "--random-depth") o.depths = whole(n, value, 1, 1000);
    else if (name == "--last" || name == "--first" || name == "--models") {
      const char* comma = strchr(value, ',');
      if (!comma) refuse(name + " needs two whole numbers with a comma between them");
      const bool last = name == "--last", first = name == "--first";
      (last ? o.last_every : first ? o.first : o.models) = whole(n, std::string(value, comma).c_str(), 1, 1000000);
      (last ? o.last_batch : first ? o.first_batch : o.turn) = whole(n, comma + 1, last || first ? 4 : 1, 1000000);
    }
    else if (name == "--list") o.list = value;
    else if (name == "--lr") {
      char* end;
      o.rate = strtof(value, &end);
      if (*end || !(o.rate > 0)) refuse("--lr needs a number above 0");
    } else if (name == "--optimiser") {
      if (!strcmp(value, "sgd")) o.shape.optimiser = Optimiser::sgd;
      else if (!strcmp(value, "momentum")) o.shape.optimiser = Optimiser::momentum;
      else if (!strcmp(value, "adam")) o.shape.optimiser = Optimiser::adam;
      else refuse(std::string("--optimiser knows sgd, momentum and adam, not '") + value + "'");
    } else refuse("'" + name + "' is unknown");
  }
  if (o.last_batch % 4 || o.last_batch > o.shape.batch) refuse("--last needs a batch that is a multiple of 4 and no larger than --batch");
  if (o.first_batch % 4 || o.first_batch > o.shape.batch) refuse("--first needs a batch that is a multiple of 4 and no larger than --batch");
  if (o.shape.width % 4 || o.shape.batch % 4) refuse("--width and --batch must be multiples of 4");
  if (o.rate == 0) o.rate = o.shape.optimiser == Optimiser::adam ? 0.006f : o.shape.optimiser == Optimiser::momentum ? 0.1f : 0.5f;
  if (o.epochs) o.iterations = (o.epochs * train_count + o.shape.batch - 1) / o.shape.batch;
  return o;
}

// A permutation of 0 .. count - 1 that depends on the seed alone.
std::vector<int> shuffled(int count, uint64_t* state) {
  std::vector<int> order(count);
  std::iota(order.begin(), order.end(), 0);
  for (int i = count - 1; i > 0; i--) {
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    std::swap(order[i], order[(*state >> 33) % (i + 1)]);
  }
  return order;
}

int train(const Options& o) {
  std::vector<float> images(image_count * pixels);
  std::vector<int> labels(image_count);
  for (int i = 0; i < image_count; i++) {
    const unsigned char* record = digits_data + i * (pixels + 1);
    for (int p = 0; p < pixels; p++) images[i * pixels + p] = record[p] / 16.0f - 0.5f;
    labels[i] = record[pixels];
  }
  // The same split for every seed: the test images are never trained on.
  uint64_t split_state = 20240229;
  const std::vector<int> split = shuffled(image_count, &split_state);
  const std::vector<int> train_set(split.begin(), split.begin() + train_count), test_set(split.begin() + train_count, split.end());

  auto backend = make_backend();
  std::unique_ptr<Listing> listing;
  if (!o.list.empty()) {
    FILE* file = fopen(o.list.c_str(), "w");
    if (!file) throw std::runtime_error("--list " + o.list + ": cannot be written");
    listing = std::make_unique<Listing>(*backend, file);
  }
  std::vector<std::unique_ptr<Network>> networks;
  for (long i = 0; i < o.models; i++) {
    networks.push_back(std::make_unique<Network>(listing ? *listing : *backend, o.shape, o.seed + i));
    networks.back()->load(images, labels);
  }
  std::vector<std::vector<int>> depths(o.depths);
  uint64_t depth_state = o.seed ^ 0x2545f4914f6cdd1dull;
  const auto draw = [&] { return (depth_state = depth_state * 6364136223846793005ull + 1442695040888963407ull) >> 33; };
  for (std::vector<int>& blocks : depths)
    for (int i = 1; i < o.shape.depth - 1; i++)
      if (draw() % 4) blocks.push_back(i);
  uint64_t order_state = o.seed ^ 0x5851f42d4c957f2dull;
  std::vector<int> order;
  size_t next = 0;
  const auto next_batch = [&](int size) {
    std::vector<int> batch(size);
    for (int& b : batch) {
      if (next == order.size()) { order = shuffled(train_count, &order_state); next = 0; }
      b = train_set[order[next++]];
    }
    return batch;
  };
  for (long step = 1; step <= o.iterations; step++) {
    Network& network = *networks[(step - 1) / o.turn % o.models];
    const std::vector<int> batch = next_batch(step <= o.first ? o.first_batch : o.last_every && step % o.last_every == 0 ? o.last_batch : o.shape.batch);
    if (o.depths) network.use_blocks(depths[draw() % o.depths]);
    // The rate falls to a tenth over the run, after a warm-up of ten steps.
    const float progress = static_cast<float>(step - 1) / o.iterations;
    const float rate = o.rate * std::min(1.0f, step / 10.0f) * (1.0f - 0.9f * progress);
    std::vector<std::vector<int>> batches{batch};
    while (static_cast<long>(batches.size()) < o.accumulate) batches.push_back(next_batch(o.shape.batch));
    const float loss = o.accumulate > 1 ? network.train_accumulated(batches, rate, static_cast<int>(step)) : network.train(batch, rate, static_cast<int>(step));
    printf("step %ld loss %.9g %a\n", step, loss, loss);
    if (o.evaluate && step % o.evaluate == 0) printf("step %ld right %d\n", step, network.correct(test_set));
    fflush(stdout);
  }
  Network& network = *networks.front();
  printf("parameters %016llx\n", static_cast<unsigned long long>(network.parameter_hash()));
  const int train_right = network.correct(train_set), test_right = network.correct(test_set);
  printf("accuracy train %.4f test %.4f\n", static_cast<double>(train_right) / train_set.size(), static_cast<double>(test_right) / test_set.size());
  if (o.report_peak) printf("peak live bytes %zu\n", backend->peak());
  return 0;
}

}  // namespace
}  // namespace digits

int main(int argc, char** argv) {
  const digits::Options options = digits::parse(argc, argv);
  return digits::run_in_thread([&] {
    try {
      return digits::train(options);
    } catch (const digits::OutOfMemory& e) {
      fprintf(stderr, "digits: %s\n", e.what());
      return 3;
    } catch (const std::exception& e) {
      fprintf(stderr, "digits: %s\n", e.what());
      return 1;
    }
  });
}
