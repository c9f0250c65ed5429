// Stands in for the PTX translator where it is not built: every image is refused.
#include "tests/softgpu/ptx/module.hpp"

namespace softgpu::ptx {
tl::expected<std::unique_ptr<Module>, Error> load(std::string_view, const Options&) { return tl::unexpected(Error{"this driver was built without the PTX translator"}); }
tl::expected<std::unique_ptr<Module>, Error> link(const std::vector<std::string_view>& texts, const Options& o) { return load(texts.empty() ? "" : texts[0], o); }
bool looks_like_ptx(std::string_view data) { return data.find(".version") != std::string_view::npos; }
}  // namespace softgpu::ptx
