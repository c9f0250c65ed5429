// Advice as text, as JSON and as one HTML page.
#include <algorithm>
#include <cmath>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "shim/cli/advise.hpp"
#include "shim/cli/format.hpp"

namespace udnnmem::cli {
namespace {


std::string link_name(const Links& links) { return links.in == links.out ? fmt::format("{:g} GB/s", links.in / 1e9) : fmt::format("{:g} GB/s in, {:g} out", links.in / 1e9, links.out / 1e9); }

double samples_per_second(const Advice& advice, const policy::Outcome& outcome) { return outcome.valid && outcome.time.value ? static_cast<double>(advice.batch) * 1e9 / static_cast<double>(outcome.time.value) : 0; }

std::string rate(const Advice& advice, const policy::Outcome& outcome) { return advice.batch && outcome.time.value ? fmt::format("{:.1f}", samples_per_second(advice, outcome)) : "-"; }

std::string batch(const std::optional<LargestBatch>& value) { return !value ? "-" : value->at_least ? fmt::format(">= {}M", value->batch >> 20) : human_count(value->batch); }

constexpr const char* endless_host = "host memory is not bounded here: --host SIZE bounds it";

std::string escaped(const std::string& text) {
    std::string to;
    for (const char c : text) {
        if (c == '<') to += "&lt;";
        else if (c == '>') to += "&gt;";
        else if (c == '&') to += "&amp;";
        else if (c == '"') to += "&quot;";
        else to += c;
    }
    return to;
}

// Speed over memory, a curve a link. Plain SVG: nothing to load, nothing to run.
std::string plot(const Advice& advice) {
    constexpr double width = 760, height = 380, left = 62, right = 16, top = 14, bottom = 48;
    constexpr const char* colours[] = {"#1f6feb", "#d1580b", "#2a8f3c", "#8a3ffc", "#b3261e", "#00798c"};
    double most = 1;
    for (const LinkAdvice& link : advice.links)
        for (const AdvicePoint& p : link.points) most = std::max(most, static_cast<double>(p.memory.value) / 0x1p30);
    const auto x = [&](double gib) { return left + gib / most * (width - left - right); };
    const auto y = [&](double speed) { return height - bottom - speed * (height - top - bottom); };
    std::string svg = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"speed over memory\">\n", width, height);
    for (int tick = 0; tick <= 10; tick += 2) svg += fmt::format("<line class=\"grid\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/><text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{} %</text>\n", left, y(tick / 10.0), width - right, y(tick / 10.0), left - 6, y(tick / 10.0) + 4, tick * 10);
    const double step = std::pow(10, std::floor(std::log10(most))) / (most / std::pow(10, std::floor(std::log10(most))) < 3 ? 4 : 1);
    for (double gib = 0; gib <= most; gib += step) svg += fmt::format("<line class=\"grid\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\"/><text x=\"{0:.1f}\" y=\"{3:.1f}\" text-anchor=\"middle\">{4:g}</text>\n", x(gib), top, height - bottom, height - bottom + 18, gib);
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">device memory, GiB</text>\n", (left + width) / 2, height - 10);
    for (std::size_t i = 0; i < advice.links.size(); ++i) {
        const char* colour = colours[i % std::size(colours)];
        std::string line, dots;
        for (const AdvicePoint& p : advice.links[i].points) {
            if (!p.outcome.valid || !std::isfinite(p.speed())) continue;
            const double px = x(static_cast<double>(p.memory.value) / 0x1p30), py = y(p.speed());
            line += fmt::format("{:.1f},{:.1f} ", px, py);
            dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" fill=\"{}\"><title>{} ({} of peak live): {} of ideal, {} an iteration, bound by {}</title></circle>\n", px, py, colour, human(p.memory), human_share(p.share), human_share(p.speed()), human(p.outcome.time), p.binds);
        }
        svg += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n{}", line, colour, dots);
        svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" style=\"fill:{}\" text-anchor=\"end\">{}</text>\n", width - right - 4, height - bottom - 10 - 18.0 * static_cast<double>(advice.links.size() - 1 - i), colour, link_name(advice.links[i].links));
    }
    return svg + "</svg>\n";
}

}  // namespace

std::string advice_text(std::span<const Advice> all) {
    std::string text;
    for (const Advice& a : all) {
        if (!text.empty()) text += "\n";
        text += fmt::format("{}: {} ops, batch {}, {} with everything resident ({} samples/s)\n", shown(a.name), human_count(a.ops), a.batch ? human_count(a.batch) : "unknown", human(a.ideal),
                            a.batch && a.ideal.value ? fmt::format("{:.1f}", static_cast<double>(a.batch) * 1e9 / static_cast<double>(a.ideal.value)) : "-");
        text += fmt::format("peak live {}, of it persistent {}; the largest op needs {}\n", human(a.peak), human(a.persistent), human(a.largest_op));
        if (!a.batch) text += ask_for_batches(all.size()) + "\n";
        for (const LinkAdvice& link : a.links) {
            text += fmt::format("\nlink {}\n{:>12}{:>10}{:>12}{:>10}{:>13}{:>12}{:>12}  {}\n", link_name(link.links), "memory", "of peak", "time", "of ideal", "samples/s", "stalled", "recompute", "bound by");
            for (const AdvicePoint& p : link.points) {
                if (!p.outcome.valid) {
                    text += fmt::format("{:>12}{:>10}  no plan: {}\n", human(p.memory), human_share(p.share), shown(p.outcome.error));
                    continue;
                }
                text += fmt::format("{:>12}{:>10}{:>12}{:>10} {:>12}{:>12}{:>12}  {}\n", human(p.memory), human_share(p.share), human(p.outcome.time), human_share(p.speed()), rate(a, p.outcome), human(p.outcome.stall), human(p.outcome.recompute), p.binds);
            }
            text += "smallest memory for";
            for (std::size_t w = 0; w < wanted_speeds.size(); ++w)
                text += fmt::format("{} {:.0f} % speed: {}", w ? "," : "", 100 * wanted_speeds[w], link.smallest[w] ? human(*link.smallest[w]) + (a.peak.value ? fmt::format(" ({:.0f} %)", 100 * static_cast<double>(link.smallest[w]->value) / static_cast<double>(a.peak.value)) : "") : "-");
            text += "\n";
        }
        text += fmt::format("\nat the traced device's speed of compute, with the memory and link of\n{:<20}{:>10}{:>8}{:>10} {:>12}{:>11}{:>11}{:>11}\n", "card", "memory", "GB/s", "of ideal", "samples/s", "bound by", "batch fits", "and pays");
        for (const CardAdvice& c : a.cards)
            text += fmt::format("{:<20}{:>10}{:>8g}{:>10} {:>12}{:>11}{:>11}{:>11}\n", c.card.name, human(c.memory), c.card.link, c.point.outcome.valid ? human_share(c.point.speed()) : "no plan", c.point.outcome.valid ? rate(a, c.point.outcome) : "-",
                                c.point.outcome.valid ? c.point.binds : "-", batch(c.fits), batch(c.pays));
        text += "(a batch pays while it reaches 90 % of the samples/s it would have with memory for everything)\n";
        if (a.host == Bytes::max()) text += fmt::format("({})\n", endless_host);
    }
    return text;
}

std::string advice_json(std::span<const Advice> all) {
    using nlohmann::ordered_json;
    ordered_json root;
    root["traces"] = ordered_json::array();
    const auto point = [](const Advice& a, const AdvicePoint& p) {
        ordered_json to{{"memory_bytes", p.memory.value}, {"share_of_peak", p.share}, {"feasible", p.outcome.valid}};
        const bool good = p.outcome.valid;
        to["time_ns"] = good ? ordered_json(p.outcome.time.value) : ordered_json();
        to["eta_ideal"] = good ? ordered_json(p.speed()) : ordered_json();
        to["samples_per_second"] = good && a.batch ? ordered_json(samples_per_second(a, p.outcome)) : ordered_json();
        to["lower_bound_ns"] = p.bound.value;
        to["stall_ns"] = good ? ordered_json(p.outcome.stall.value) : ordered_json();
        to["recompute_ns"] = good ? ordered_json(p.outcome.recompute.value) : ordered_json();
        to["binds"] = good ? ordered_json(p.binds) : ordered_json();
        return to;
    };
    const auto largest = [](const auto& value) { return value ? ordered_json(value->batch) : ordered_json(); };
    for (const Advice& a : all) {
        ordered_json trace{{"trace", a.name}, {"file", a.file}, {"ops", a.ops}, {"batch", a.batch ? ordered_json(a.batch) : ordered_json()}, {"ideal_ns", a.ideal.value}, {"peak_live_bytes", a.peak.value}, {"persistent_bytes", a.persistent.value}, {"largest_op_bytes", a.largest_op.value},
                           {"damaged_from_line", a.damaged ? ordered_json(a.damaged) : ordered_json()}};
        trace["links"] = ordered_json::array();
        for (const LinkAdvice& link : a.links) {
            ordered_json to{{"link_in", link.links.in}, {"link_out", link.links.out}, {"points", ordered_json::array()}, {"smallest_memory", ordered_json::object()}};
            for (const AdvicePoint& p : link.points) to["points"].push_back(point(a, p));
            for (std::size_t w = 0; w < wanted_speeds.size(); ++w) to["smallest_memory"][fmt::format("{:.0f}", 100 * wanted_speeds[w])] = link.smallest[w] ? ordered_json(link.smallest[w]->value) : ordered_json();
            trace["links"].push_back(std::move(to));
        }
        trace["cards"] = ordered_json::array();
        for (const CardAdvice& c : a.cards) {
            ordered_json to{{"card", c.card.name}, {"link", c.card.link * 1e9}, {"largest_batch_fits", largest(c.fits)}, {"largest_batch_pays", largest(c.pays)}};
            to.update(point(a, c.point));
            to["largest_batch_fits_at_least"] = c.fits && c.fits->at_least;  // no larger one was tried
            to["largest_batch_pays_at_least"] = c.pays && c.pays->at_least;
            trace["cards"].push_back(std::move(to));
        }
        root["traces"].push_back(std::move(trace));
    }
    return root.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string advice_html(std::span<const Advice> all) {
    std::string html = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>udnnmem advise</title>\n<style>\n"
                       "body{font:15px/1.45 system-ui,sans-serif;max-width:820px;margin:2em auto;padding:0 1em;color:#1c2128;background:#fff}\nh1{font-size:1.3em}h2{font-size:1.1em;margin-top:2em}\n"
                       "table{border-collapse:collapse;margin:.8em 0;font-variant-numeric:tabular-nums}th,td{padding:.2em .7em;text-align:right;border-bottom:1px solid #d8dee4}th:first-child,td:first-child{text-align:left}\n"
                       ".warning{padding:.5em .8em;border-left:4px solid #d1580b;background:#fff3e8;color:#1c2128}svg{width:100%;font-size:12px}svg text{fill:#57606a}.grid{stroke:#e4e8ec}\n@media(prefers-color-scheme:dark){body{background:#14171c;color:#dde3ea}th,td{border-color:#353c46}.grid{stroke:#2a3038}svg text{fill:#9aa5b1}}\n</style></head><body>\n"
                       "<h1>Memory, link, card, batch</h1>\n<p>Speed is a share of what the iteration would run at with everything resident. Points show their figures when pointed at.</p>\n";
    for (const Advice& a : all) {
        html += fmt::format("<h2>{}</h2>\n<p>{} ops, batch {}; {} with everything resident. Peak live {}, of it persistent {}; the largest op needs {}.</p>\n", escaped(a.name), human_count(a.ops), a.batch ? human_count(a.batch) : "unknown", human(a.ideal), human(a.peak),
                            human(a.persistent), human(a.largest_op));
        if (a.damaged) html += fmt::format("<p class=\"warning\">{}: {}.</p>\n", escaped(a.file), escaped(a.damage));
        if (!a.batch) html += "<p>" + ask_for_batches(all.size()) + "</p>\n";
        html += plot(a);
        html += "<table><tr><th>smallest memory for</th>";
        for (const double speed : wanted_speeds) html += fmt::format("<th>{:.0f} % speed</th>", 100 * speed);
        html += "</tr>\n";
        for (const LinkAdvice& link : a.links) {
            html += fmt::format("<tr><td>{}</td>", link_name(link.links));
            for (const auto& memory : link.smallest) html += fmt::format("<td>{}</td>", memory ? human(*memory) : "-");
            html += "</tr>\n";
        }
        html += "</table>\n<table><tr><th>card</th><th>memory</th><th>GB/s</th><th>of ideal</th><th>samples/s</th><th>bound by</th><th>batch fits</th><th>and pays</th></tr>\n";
        for (const CardAdvice& c : a.cards)
            html += fmt::format("<tr><td>{}</td><td>{}</td><td>{:g}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n", c.card.name, human(c.memory), c.card.link, c.point.outcome.valid ? human_share(c.point.speed()) : "no plan",
                                c.point.outcome.valid ? rate(a, c.point.outcome) : "-", c.point.outcome.valid ? c.point.binds : "-", escaped(batch(c.fits)), escaped(batch(c.pays)));
        html += "</table>\n<p>Cards: their memory less 1 GiB and their link, at the traced device's speed of compute. A batch pays while it reaches 90 % of the samples/s it would have with memory for everything.";
        if (a.host == Bytes::max()) html += fmt::format(" Note: {}.", endless_host);
        html += "</p>\n";
    }
    return html + "</body></html>\n";
}

}  // namespace udnnmem::cli
