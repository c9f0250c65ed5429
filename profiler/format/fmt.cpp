// fmt's own code, compiled once: header by header it took half of the time that the build takes, and Debian's package has no
// static library. Whoever includes <fmt/core.h> alone calls what is here; the instantiations are those that its headers leave out.
#include <fmt/format-inl.h>

namespace fmt {
inline namespace v9 {
static_assert(FMT_VERSION / 10000 == 9, "which instantiations fmt's headers leave out differs between versions");
template char detail::decimal_point_impl<char>(detail::locale_ref);
template detail::thousands_sep_result<char> detail::thousands_sep_impl<char>(detail::locale_ref);
template void detail::buffer<char>::append<char>(const char*, const char*);
template void detail::vformat_to<char>(detail::buffer<char>&, basic_string_view<char>, basic_format_args<buffer_context<char>>, detail::locale_ref);
}  // namespace v9
}  // namespace fmt
