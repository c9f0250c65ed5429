// What cublas.cpp and cudnn.cpp share: the real functions, and the bracket around a call.
#pragma once

#include "profiler/math/api.hpp"
#include "profiler/math/calls.hpp"

// The releases that are told apart, for two may be in one process:  DO(release, version, ...). A release's soname is also its symbols'
// version, so linked references say which they mean. `any` is the default version: for references without one. module.mk has them
// for the linker; a release that is not here is not seen.
#define ANY_RELEASE "@UDNNMEM"
#define CUBLAS_RELEASES(DO, ...) DO(any, ANY_RELEASE, __VA_ARGS__) DO(11, "libcublas.so.11", __VA_ARGS__) DO(12, "libcublas.so.12", __VA_ARGS__) DO(13, "libcublas.so.13", __VA_ARGS__)
#define CUBLASLT_RELEASES(DO, ...) DO(any, ANY_RELEASE, __VA_ARGS__) DO(11, "libcublasLt.so.11", __VA_ARGS__) DO(12, "libcublasLt.so.12", __VA_ARGS__) DO(13, "libcublasLt.so.13", __VA_ARGS__)
#define CUDNN_RELEASES(DO, ...) DO(any, ANY_RELEASE, __VA_ARGS__) DO(8, "libcudnn.so.8", __VA_ARGS__) DO(9, "libcudnn.so.9", __VA_ARGS__)

// The function that is exported as `name` in that version, and nothing else: an export without a version would be taken for all of them.
#define MATH_NAME(name, release) udnnmem_##name##_##release
// Defines it; `which` is what it is called here.
#define MATH_EXPORT(release, version, name, parameters, ...)                                    \
    asm(".symver udnnmem_" #name "_" #release ", " #name "@" version);                          \
    extern "C" __attribute__((visibility("default"))) int MATH_NAME(name, release) parameters { \
        constexpr Function which = Function::name##_##release;                                  \
        return __VA_ARGS__;                                                                     \
    }

namespace udnnmem::profiler::math {

// A name's are in a row, `any` first.
enum class Function : unsigned {
#define ENUMERATOR(release, version, name) name##_##release,
#define CALL(library, name, ...) library##_RELEASES(ENUMERATOR, name)
#include "profiler/math/calls.def"
#undef CALL
#undef ENUMERATOR
    count
};

// The library's own function; null: it is not loaded, or lacks it. From then on the library stays loaded.
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
