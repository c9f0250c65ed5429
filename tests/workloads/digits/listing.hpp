// --list FILE: a backend that writes down what the network asks of another one, one request a line, so that a test can
// compare it with what an observer of the driver saw. Buffers are numbered in the order of their making.
//   a BUFFER BYTES   f BUFFER   l KERNEL BUFFER...   z BUFFER BYTES   u BUFFER BYTES   d BUFFER BYTES
#pragma once
#include <cstdio>
#include <map>
#include <vector>

#include "tests/workloads/digits/backend.hpp"

namespace digits {

class Listing : public Backend {
 public:
  Listing(Backend& to, FILE* file) : to_(to), file_(file) {}
  ~Listing() override { fclose(file_); }

  void* allocate(size_t bytes) override {
    void* p = to_.allocate(bytes);
    numbers_[p] = {next_, bytes};
    fprintf(file_, "a %d %zu\n", next_++, bytes);
    return p;
  }
  void release(void* p) override {
    fprintf(file_, "f %d\n", number(p));
    numbers_.erase(p);
    to_.release(p);
  }
  void uses(std::initializer_list<const void*> buffers) override { used_.assign(buffers); }
  void launch(Kernel kernel, Grid grid, void** arguments) override {
#define K(name) #name,
    static const char* const names[] = {DIGITS_KERNELS(K)};
#undef K
    fprintf(file_, "l %s", names[static_cast<int>(kernel)]);
    for (const void* p : used_)
      if (p) fprintf(file_, " %d", number(p));
    fputc('\n', file_);
    to_.launch(kernel, grid, arguments);
  }
  void zero(void* p, size_t bytes) override { copy('z', p, bytes), to_.zero(p, bytes); }
  void upload(void* p, const void* from, size_t bytes) override { copy('u', p, bytes), to_.upload(p, from, bytes); }
  void download(void* to, const void* p, size_t bytes) override { copy('d', p, bytes), to_.download(to, p, bytes); }
  void fork() override { to_.fork(); }
  void main() override { to_.main(); }
  void join() override { to_.join(); }
  void step(const std::function<void()>& work) override { to_.step(work); }

 private:
  struct Numbered { int number; size_t bytes; };
  int number(const void* p) const {
    auto found = numbers_.upper_bound(p);
    if (found == numbers_.begin()) return -1;
    --found;
    return static_cast<const char*>(p) < static_cast<const char*>(found->first) + found->second.bytes ? found->second.number : -1;
  }
  void copy(char what, const void* p, size_t bytes) { fprintf(file_, "%c %d %zu\n", what, number(p), bytes); }

  Backend& to_;
  FILE* file_;
  int next_ = 0;
  std::map<const void*, Numbered> numbers_;
  std::vector<const void*> used_;
};

}  // namespace digits
