// What cublas.cpp and cudnn.cpp share: the real functions, and the bracket around a call.
#pragma once

#include "profiler/math/api.hpp"
#include "profiler/math/calls.hpp"

#define MATH_EXPORT extern "C" __attribute__((visibility("default")))

namespace udnnmem::profiler::math {

enum class Function : unsigned {
#define CALL(name, ...) name,
#include "profiler/math/calls.def"
#undef CALL
    count
};

// The library's own function; null: it is not loaded, or lacks it.
void* real(Function which) noexcept;
// Another function of the library that has `which`; null: it is not there. Keep the answer.
void* beside(Function which, const char* name) noexcept;

bool watching() noexcept;

// A call is under way on this thread. `flops` is asked only for an outermost one that somebody watches.
class Bracket {
  public:
    template <class Flops>
    Bracket(const char* name, Flops&& flops) noexcept {
        if (depth()++ == 0 && watching()) begin(name, flops());
    }
    ~Bracket() {
        if (--depth() == 0) end();
    }
    Bracket(const Bracket&) = delete;
    Bracket& operator=(const Bracket&) = delete;

  private:
    static unsigned& depth() noexcept;
    static void begin(const char* name, double flops) noexcept;
    static void end() noexcept;
};

template <class F, class Flops, class... Arguments>
int hand_on(Function which, const char* name, Flops&& flops, Arguments... arguments) noexcept {
    F* const function = reinterpret_cast<F*>(real(which));
    if (!function) return api::not_initialised;
    Bracket bracket(name, flops);
    return function(arguments...);
}

}  // namespace udnnmem::profiler::math
