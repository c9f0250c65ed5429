// A reference to a callable: two words, no allocation, valid while the callable lives.
#pragma once

#include <type_traits>
#include <utility>

namespace udnnmem::interpose {

template <class Signature>
class FunctionRef;

template <class R, class... A>
class FunctionRef<R(A...)> {
  public:
    template <class F, class = std::enable_if_t<!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>>>
    FunctionRef(F&& f) noexcept  // NOLINT: implicit, so that a lambda can be passed
        : object_(const_cast<void*>(static_cast<const void*>(&f))),
          call_([](void* o, A... a) -> R { return (*static_cast<std::remove_reference_t<F>*>(o))(std::forward<A>(a)...); }) {}
    R operator()(A... a) const { return call_(object_, std::forward<A>(a)...); }

  private:
    void* object_;
    R (*call_)(void*, A...);
};

}  // namespace udnnmem::interpose
