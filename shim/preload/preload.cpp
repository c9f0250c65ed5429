// The library's way in. The constructor hands the handlers to the hooks and tells NVTX where we are: no CUDA, no thread, no line.
// Everything starts at the program's first managed call. Three options matter before that and are read here, where they are set at all: the kill
// switch, the exports, and tracing of look-ups. A Python is besides given what makes its frameworks pass allocations
// through, because it reads its environment once, next.
#include <dlfcn.h>

#include <cstdlib>
#include <iterator>

#include "interpose/driver.hpp"
#include "profiler/math/calls.hpp"
#include "profiler/nvtx/injection.hpp"
#include "shim/frameworks/frameworks.hpp"
#include "shim/log/log.hpp"
#include "shim/preload/session.hpp"

namespace {

// The names of cuBLAS and so on are exported beside the driver's.
void register_math_calls() {
    using namespace udnnmem;
    static interpose::OtherName names[128];
    std::size_t count = 0;
    for (const profiler::math::Export& e : profiler::math::exports())
        if (count < std::size(names)) names[count++] = {e.name, e.functions, e.backed, e.in_front_of};
    interpose::other_names(names, names + count);
}

__attribute__((constructor)) void install_handlers() {
    using namespace udnnmem;
    log::find_stderr();
    register_math_calls();
    if (switched_off()) {
        interpose::close_doors();
        return;
    }
    if (std::getenv("UDNNMEM_DEBUG") || std::getenv("UDNNMEM_HIDE_EXPORTS")) {
        if (const auto options = parse_options()) {  // a wrong value is complained about when the program reaches for CUDA
            if (options->hide_exports) interpose::hide_exports();
            if (options->debug == Level::trace) {
                log::configure(options->debug, options->debug_file);
                interpose::trace_lookups([](const char* line) noexcept { log::trace("{}", line); });
            }
        }
    }
    interpose::install(&preload::handlers);
    Dl_info own{};
    if (::dladdr(reinterpret_cast<void*>(&install_handlers), &own) && own.dli_fname) profiler::nvtx::inject(own.dli_fname);
    if (const auto python = frameworks::this_python())
        if (const auto options = parse_options(); options && options->frameworks == When::automatic && is_managed_process(*options)) frameworks::set_for(*python);
}

}  // namespace
