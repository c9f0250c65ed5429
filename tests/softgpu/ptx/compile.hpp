// C text to machine code: the system's gcc, a cache by content, dlopen.
#pragma once

#include <memory>
#include <string>

#include <tl/expected.hpp>

#include "tests/softgpu/ptx/module.hpp"

namespace softgpu::ptx {

// A loaded shared object; unloaded with its last owner.
class Object {
  public:
    explicit Object(void* handle) : handle_(handle) {}
    ~Object();
    Object(const Object&) = delete;
    Object& operator=(const Object&) = delete;
    void* symbol(const char* name) const;

  private:
    void* handle_;
};

// Compiles `text` unless cache_folder holds the result of the same text, compiler, options and
// processor. Several processes may do this at once: a file appears under its name when complete.
tl::expected<std::shared_ptr<Object>, Error> compile(const std::string& text, const std::string& cache_folder);

}  // namespace softgpu::ptx
