// An object that there is before any code of ours runs, and still when the last destructor of the program does: it is made by the
// compiler and never destroyed. The program's calls come from its static constructors and destructors too.
#pragma once

namespace udnnmem::interpose {

template <class T>
class Immortal {
  public:
    constexpr Immortal() : value_() {}
    constexpr ~Immortal() {}
    T* operator->() { return &value_; }

  private:
    union {
        T value_;
    };
};

}  // namespace udnnmem::interpose
