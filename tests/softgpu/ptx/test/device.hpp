// A device for the translator's tests: memory whose device addresses are unreadable, mapped again
// `view_offset` higher, as the driver has it; and a module whose kernels are launched by name.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/softgpu/ptx/module.hpp"

namespace softgpu::ptx::test {

class Device {
  public:
    static constexpr std::size_t bytes = std::size_t{64} << 20;
    Device() {
        base_ = static_cast<std::uint8_t*>(mmap(nullptr, 2 * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        if (base_ == MAP_FAILED || mprotect(base_ + bytes, bytes, PROT_READ | PROT_WRITE) != 0) throw std::runtime_error("mmap");
    }
    ~Device() { munmap(base_, 2 * bytes); }
    std::uint64_t view_offset() const { return bytes; }
    std::uint64_t allocate(std::size_t n, std::size_t align = 256) {
        used_ = (used_ + align - 1) / align * align;
        const std::uint64_t a = reinterpret_cast<std::uint64_t>(base_) + used_;
        used_ += n + 64;
        if (used_ > bytes) throw std::runtime_error("out of device memory");
        return a;
    }
    template <class T>
    std::uint64_t upload(const std::vector<T>& v) {
        const std::uint64_t a = allocate(v.size() * sizeof(T));
        std::memcpy(view(a), v.data(), v.size() * sizeof(T));
        return a;
    }
    template <class T>
    std::vector<T> download(std::uint64_t a, std::size_t n) const {
        std::vector<T> v(n);
        std::memcpy(v.data(), view(a), n * sizeof(T));
        return v;
    }
    void* view(std::uint64_t a) const { return reinterpret_cast<void*>(a + bytes); }

  private:
    std::uint8_t* base_;
    std::size_t used_ = 4096;
};

inline std::string build_folder() {
    const char* b = std::getenv("UDNNMEM_BUILD");
    return b ? b : "build";
}
inline std::string read_file(const std::string& path) {
    std::ifstream f(path, std::ios::binary);
    if (!f) throw std::runtime_error("cannot read " + path);
    std::stringstream s;
    s << f.rdbuf();
    return s.str();
}

class Program {
  public:
    Program(Device& device, const std::vector<std::string>& texts, Options options = {}) : device_(device) {
        options.view_offset = device.view_offset();
        if (options.cache_folder.empty()) options.cache_folder = build_folder() + "/ptx-test-cache";
        std::vector<std::string_view> views(texts.begin(), texts.end());
        auto made = link(views, options);
        if (!made) throw std::runtime_error(made.error().message);
        module_ = std::move(*made);
        for (std::size_t i = 0; i < module_->globals().size(); ++i) {
            const Global& g = module_->globals()[i];
            const std::uint64_t a = device.allocate(g.bytes, g.align < 256 ? 256 : g.align);
            if (!g.initial.empty()) std::memcpy(device.view(a), g.initial.data(), g.bytes);
            module_->place_global(i, a);
            places_.push_back(a);
        }
    }
    const Module& module() const { return *module_; }
    const Kernel& kernel(const std::string& name) const { return module_->kernels()[index(name)]; }
    std::uint64_t global(const std::string& name) const {
        for (std::size_t i = 0; i < places_.size(); ++i)
            if (module_->globals()[i].name == name) return places_[i];
        throw std::runtime_error("no global " + name);
    }
    template <class... A>
    tl::expected<Work, Error> try_launch(const std::string& name, const LaunchDims& dims, A... arguments) {
        const std::size_t k = index(name);
        const Kernel& kernel = module_->kernels()[k];
        std::vector<std::uint8_t> buffer(kernel.param_bytes + 16);
        std::size_t i = 0;
        auto put = [&](const auto& a) {
            const Param& p = kernel.params.at(i++);
            if (p.size != sizeof a) throw std::runtime_error("argument " + std::to_string(i) + " of " + name + " has another size");
            std::memcpy(buffer.data() + p.offset, &a, sizeof a);
        };
        (put(arguments), ...);
        if (i != kernel.params.size()) throw std::runtime_error("too few arguments for " + name);
        return module_->run(k, dims, buffer.data());
    }
    template <class... A>
    Work launch(const std::string& name, const LaunchDims& dims, A... arguments) {
        auto done = try_launch(name, dims, arguments...);
        if (!done) throw std::runtime_error(done.error().message);
        return *done;
    }

  private:
    std::size_t index(const std::string& name) const {
        for (std::size_t i = 0; i < module_->kernels().size(); ++i)
            if (module_->kernels()[i].name == name) return i;
        throw std::runtime_error("no kernel " + name);
    }
    Device& device_;
    std::unique_ptr<Module> module_;
    std::vector<std::uint64_t> places_;
};

inline LaunchDims dims(std::uint32_t grid, std::uint32_t block, std::uint32_t shared = 0) {
    LaunchDims d;
    d.grid.x = grid, d.block.x = block, d.dynamic_shared_bytes = shared;
    return d;
}

// kernels.cu.
inline Program load_kernels(Device& d, Options o = {}) { return Program(d, {read_file(build_folder() + "/softgpu-test/kernels.ptx")}, o); }

}  // namespace softgpu::ptx::test
