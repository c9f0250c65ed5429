// The library's way in. The constructor hands the handlers to the hooks and does nothing else: no CUDA, no file, no
// thread, no line. Everything starts at the program's first managed call. Three options matter before that and are read
// here, where they are set at all: the kill switch, the exports, and tracing of look-ups.
#include <cstdlib>

#include "interpose/driver.hpp"
#include "shim/log/log.hpp"
#include "shim/preload/session.hpp"

namespace {

__attribute__((constructor)) void install_handlers() {
    using namespace udnnmem;
    bool disabled = false;
    if (std::getenv("UDNNMEM_DISABLE") || std::getenv("UDNNMEM_DEBUG") || std::getenv("UDNNMEM_HIDE_EXPORTS")) {
        if (const auto options = parse_options()) {  // a wrong value is complained about when the program reaches for CUDA
            disabled = options->disable;
            if (options->hide_exports) interpose::hide_exports();
            if (options->debug == Level::trace) {
                log::configure(options->debug, options->debug_file);
                interpose::trace_lookups([](const char* line) noexcept { log::trace("{}", line); });
            }
        }
    }
    if (disabled) interpose::close_doors();
    else interpose::install(&preload::handlers);
}

}  // namespace
