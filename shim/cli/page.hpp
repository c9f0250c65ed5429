// The parts of the report's page, from shim/cli/page, as the build put them into the tool.
#pragma once

namespace udnnmem::cli {

extern const char page_html[], page_css[], page_js[];

}  // namespace udnnmem::cli
