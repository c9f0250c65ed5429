// The library's face (module.hpp): texts to a module whose kernels are compiled when first run.
#include "tests/softgpu/ptx/module.hpp"

#include <atomic>
#include <cstring>
#include <mutex>

#include "tests/softgpu/ptx/compile.hpp"
#include "tests/softgpu/ptx/launch.hpp"
#include "tests/softgpu/ptx/parser.hpp"
#include "tests/softgpu/ptx/translate.hpp"

namespace softgpu::ptx {
namespace {

constexpr std::size_t max_text = std::size_t{64} << 20;

class TranslatedModule final : public Module {
  public:
    TranslatedModule(Translation&& t, const Options& options) : options_(options), globals_(std::move(t.globals)), patches_(std::move(t.patches)), placed_(globals_.size()) {
        entries_ = std::vector<Entry>(t.kernels.size());
        for (std::size_t i = 0; i < t.kernels.size(); ++i) {
            kernels_.push_back(t.kernels[i].kernel);
            entries_[i].translated = std::move(t.kernels[i]);
        }
    }
    const std::vector<Kernel>& kernels() const override { return kernels_; }
    const std::vector<Global>& globals() const override { return globals_; }
    void place_global(std::size_t i, std::uint64_t address) override { placed_.at(i) = address; }
    tl::expected<Work, Error> run(std::size_t k, const LaunchDims& dims, const void* params) override;

  private:
    struct Entry {
        TranslatedKernel translated;
        std::mutex mutex;
        std::atomic<bool> ready{false};
        Code code;
        std::shared_ptr<Object> object;
    };
    tl::expected<void, Error> make_ready(Entry&);
    void patch_globals();

    Options options_;
    std::vector<Kernel> kernels_;
    std::vector<Global> globals_;
    std::vector<GlobalPatch> patches_;
    std::vector<std::uint64_t> placed_;
    std::vector<Entry> entries_;
    std::once_flag patched_;
};

tl::expected<void, Error> TranslatedModule::make_ready(Entry& e) {
    std::lock_guard lock(e.mutex);
    if (e.ready) return {};
    TranslatedKernel& t = e.translated;
    static const auto& front = *new std::string(prelude());
    auto object = compile(front + t.text, options_.cache_folder);
    if (!object) return tl::make_unexpected(Error{"kernel " + t.kernel.name + ": " + object.error().message});
    e.object = *object;
    if (t.stopping) {
        e.code.step = reinterpret_cast<abi::StepFunction*>(e.object->symbol("softgpu_step"));
        if (const void* bytes = e.object->symbol("softgpu_frame")) e.code.frame_bytes = *static_cast<const std::uint64_t*>(bytes);
    } else {
        e.code.block = reinterpret_cast<abi::BlockFunction*>(e.object->symbol("softgpu_block"));
    }
    if (!e.code.block && !(e.code.step && e.code.frame_bytes)) return tl::make_unexpected(Error{"kernel " + t.kernel.name + ": the compiled kernel is damaged"});
    e.code.parallel = t.parallel;
    t.text.clear();
    t.text.shrink_to_fit();
    e.ready = true;
    return {};
}

// Addresses inside initial values are known only now.
void TranslatedModule::patch_globals() {
    for (const GlobalPatch& p : patches_) {
        const std::uint64_t value = (p.function ? function_pointer(p.target) : placed_[p.target]) + static_cast<std::uint64_t>(p.addend);
        std::memcpy(reinterpret_cast<void*>(placed_[p.global] + options_.view_offset + p.offset), &value, sizeof value);
    }
}

tl::expected<Work, Error> TranslatedModule::run(std::size_t k, const LaunchDims& dims, const void* params) {
    if (k >= entries_.size()) return tl::make_unexpected(Error{"no kernel of this number"});
    Entry& e = entries_[k];
    const Kernel& kernel = kernels_[k];
    auto refuse = [&](const std::string& why) { return tl::make_unexpected(Error{"kernel " + kernel.name + ": " + why}); };
    const std::uint64_t threads = std::uint64_t{dims.block.x} * dims.block.y * dims.block.z;
    if (!threads || dims.block.x > 1024 || dims.block.y > 1024 || dims.block.z > 64 || threads > kernel.max_threads_per_block)
        return refuse("a block of " + std::to_string(threads) + " threads, at most " + std::to_string(kernel.max_threads_per_block) + " are possible");
    if (!dims.grid.x || !dims.grid.y || !dims.grid.z) return refuse("an empty grid");
    if (!e.ready)
        if (auto made = make_ready(e); !made) return tl::make_unexpected(made.error());
    std::call_once(patched_, [this] { patch_globals(); });
    abi::Launch launch{};
    launch.view_offset = options_.view_offset;
    launch.params = static_cast<const std::uint8_t*>(params);
    launch.globals = placed_.data();
    launch.grid[0] = dims.grid.x, launch.grid[1] = dims.grid.y, launch.grid[2] = dims.grid.z;
    launch.block[0] = dims.block.x, launch.block[1] = dims.block.y, launch.block[2] = dims.block.z;
    launch.dynamic_shared = dims.dynamic_shared_bytes;
    launch.total_shared = e.translated.dynamic_offset + dims.dynamic_shared_bytes;
    return execute(e.code, launch, kernel.name, options_.workers);
}

}  // namespace

tl::expected<std::unique_ptr<Module>, Error> link(const std::vector<std::string_view>& texts, const Options& options) {
    Program program;
    try {
        for (std::string_view text : texts) {
            while (!text.empty() && text.back() == '\0') text.remove_suffix(1);
            if (text.size() > max_text) return tl::make_unexpected(Error{"PTX: the text is longer than 64 MiB"});
            parse(text, program);
        }
        resolve(program);
        Translation translation = translate(program, options.count_work);
        return std::make_unique<TranslatedModule>(std::move(translation), options);
    } catch (const Refusal& r) {
        return tl::make_unexpected(Error{"PTX line " + std::to_string(r.line) + ": " + r.what()});
    } catch (const std::bad_alloc&) {
        return tl::make_unexpected(Error{"PTX: not enough memory"});
    }
}

tl::expected<std::unique_ptr<Module>, Error> load(std::string_view text, const Options& options) { return link({text}, options); }

}  // namespace softgpu::ptx
