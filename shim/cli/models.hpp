// The three models of one iteration (`udnnmem report --model`), with what they explain of the trace:
//   compute   t_l = FLOPs_l / FLOPS(FLOPs_l): kinds of ops, and the rate that ops of each size reach; t_iter(k) over batch sizes
//   memory    allocated - released <= M at every op
//   link      t = latency + bytes / bandwidth, each way
// and which of them each op waits for when a plan runs the iteration in M over that link.
#pragma once

#include <optional>
#include <span>

#include <nlohmann/json.hpp>

#include "profiler/trace/run_record.hpp"
#include "shim/cli/machine_options.hpp"
#include "shim/cli/report_formats.hpp"

namespace udnnmem::cli {

// What the traces do not say themselves.
struct ModelOptions {
    std::optional<std::string> memory;     // M; none: the run's budget
    std::optional<Links> links;            // none: the run's measured ones
    std::string no_batches;                // why there is no model of the batch size, where one was to be expected
};

// t(k) = fixed + each * k over the batch sizes that the headers say, least squares of the relative errors; fewer than two batch sizes: none.
struct BatchFit {
    struct Point {
        std::int64_t batch;
        double time;                       // ns
        std::optional<double> predicted;   // by a fit to the others, where they have two batch sizes
    };
    std::vector<Point> points;
    double fixed = 0, each = 0;            // ns; each not above 0: these times are not of one network, and make no model
    std::string doubt;                     // why the traces may not be of one network; "": they have the same ops
};
std::optional<BatchFit> fit_batches(std::span<const Report> reports);

// `models` of the JSON report: compute, memory, link, batch, binds (null where the trace says too little), kinds, and
// `summary`, the lines that people read. Error: an option that cannot be read. The run has an iteration.
Expected<nlohmann::ordered_json> models_of(const profiler::RunRecord& run, const IterationView& view, const ModelOptions& options, const std::optional<BatchFit>& batches);

}  // namespace udnnmem::cli
