// What `udnnmem report` makes of recorded runs: text and a page for people, JSON and CSV for programs, and the files
// that other viewers open. Field names of JSON and CSV are only ever added.
#pragma once

#include <span>
#include <string>

#include <nlohmann/json.hpp>

#include "profiler/trace/run_record.hpp"
#include "shim/cli/report_view.hpp"

namespace udnnmem::cli {

struct Report {
    profiler::RunRecord run;
    IterationView view;              // of it
    nlohmann::ordered_json models;   // of it (models.hpp), null where nobody asked
};

// What a refusal was about, in a few lines.
std::string explanation(const profiler::OutOfMemory& refusal);

// A section a run.
std::string report_text(std::span<const Report> reports);

// One JSON object a line and run. What this version does not find out is null, what it does not do is 0.
std::string report_json(std::span<const Report> reports);

// A heading line, then a line a run: the scalar fields of the JSON.
std::string report_csv(std::span<const Report> reports);

// One page that needs no other file. The iterations of the first runs are drawn, as many as keep it below 5 MB.
std::string report_html(std::span<const Report> reports);

// Chrome's trace event format (JSON, an object with `traceEvents`), which Perfetto opens. A process a run.
std::string report_chrome(std::span<const Report> reports);

// A memory snapshot as torch.cuda.memory._dump_snapshot() writes it (a pickle), of the iterations' buffers: a device a run.
std::string report_snapshot(std::span<const Report> reports);

}  // namespace udnnmem::cli
