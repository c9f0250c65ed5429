// The options table: every value and every complaint that a user can meet.
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "shim/options/options.hpp"
#include "shim/options/pattern.hpp"
#include "tests/catch.hpp"

using namespace udnnmem;

namespace {

using Environment = std::map<std::string, std::string>;

Expected<Options> parse(const Environment& environment) {
    return parse_options([&](const char* name) -> const char* {
        const auto found = environment.find(name);
        return found == environment.end() ? nullptr : found->second.c_str();
    });
}

std::string error_of(const Environment& environment) {
    const auto parsed = parse(environment);
    return parsed ? "(no error)" : parsed.error().message;
}

Size size(const char* text) {
    Size read;
    REQUIRE(parse_value(text, read));
    return read;
}

}  // namespace

TEST_CASE("without any variable every option has its default") {
    const auto options = parse({});
    REQUIRE(options);
    CHECK(options->budget.form == Size::Form::automatic);
    CHECK(options->host_budget.form == Size::Form::share);
    CHECK(options->host_budget.share == 0.8);
    CHECK(options->policy == Policy::udnn);
    CHECK(options->landing == Landing::unplanned);
    CHECK(options->trace.text == "udnnmem.%h.%p.jsonl.zst");
    CHECK(options->verify == 0.01);
    CHECK(options->debug == Level::warn);
    CHECK(options->debug_file.off());
    CHECK(options->only.match("anything"));
    CHECK_FALSE(options->lazy_free);
    CHECK_FALSE(options->disable);
    CHECK_FALSE(options->quiet);
    CHECK_FALSE(options->report_virtual);
}

TEST_CASE("an empty variable counts as unset") {
    const auto options = parse({{"UDNNMEM_BUDGET", ""}, {"UDNNMEM_DISABLE", ""}});
    REQUIRE(options);
    CHECK(options->budget.form == Size::Form::automatic);
    CHECK_FALSE(options->disable);
}

TEST_CASE("the host budget has no auto of its own") {
    const auto options = parse({{"UDNNMEM_HOST_BUDGET", "auto"}});
    REQUIRE(options);
    CHECK(options->host_budget.form == Size::Form::share);
    CHECK(options->host_budget.share == 0.8);
}

TEST_CASE("switched off, whatever the other options are") {
    const auto off = [](const char* value) {
        return switched_off([&](const char* variable) { return std::string_view(variable) == "UDNNMEM_DISABLE" ? value : "nonsense"; });
    };
    CHECK(off("1"));
    CHECK_FALSE(off("0"));
    CHECK_FALSE(off(""));
    CHECK_FALSE(off(nullptr));
    CHECK_FALSE(off("perhaps"));
}

TEST_CASE("sizes: units, shares, auto") {
    CHECK(size("12GiB").bytes == Bytes(12ll << 30));
    CHECK(size("800MiB").bytes == Bytes(800ll << 20));
    CHECK(size("800mib").bytes == Bytes(800ll << 20));
    CHECK(size("1.5GiB").bytes == Bytes(3ll << 29));
    CHECK(size("12G").bytes == Bytes(12ll << 30));
    CHECK(size("12Gi").bytes == Bytes(12ll << 30));
    CHECK(size("3Ki").bytes == Bytes(3072));
    CHECK(size("5 mi").bytes == Bytes(5ll << 20));
    CHECK(size("1Ti").bytes == Bytes(1ll << 40));
    CHECK(size("12 GB").bytes == Bytes(12'000'000'000));
    CHECK(size("4096").bytes == Bytes(4096));
    CHECK(size("2TiB").bytes == Bytes(2ll << 40));
    CHECK(size("60%").share == 0.6);
    CHECK(size("Auto").form == Size::Form::automatic);
    CHECK(size("60%").resolve(Bytes(1000), Bytes(7)) == Bytes(600));
    CHECK(size("auto").resolve(Bytes(1000), Bytes(7)) == Bytes(7));
    CHECK(size("5").resolve(Bytes(1000), Bytes(7)) == Bytes(5));
    for (const char* wrong : {"", "GiB", "-1", "12GiBs", "12 quatloos", "101%", "0x10", "nan", "inf", "1e9", "1,5GiB", "2000000TiB", "% ", "autos", "12GiB ", "1.2.3"}) {
        Size to;
        INFO(wrong);
        CHECK_FALSE(parse_value(wrong, to));
    }
}

TEST_CASE("a wrong value is one line: what, where, what was expected, how to be rid of it") {
    CHECK(error_of({{"UDNNMEM_BUDGET", "12Gig"}}) ==
          "UDNNMEM_BUDGET=12Gig: expected a size such as 12GiB, 800MiB, 60% or auto; unset it for the default, auto");
    CHECK(error_of({{"UDNNMEM_BUDGET", "0"}}).find("more than nothing") != std::string::npos);
    CHECK(error_of({{"UDNNMEM_BUDGET", "0%"}}).find("more than nothing") != std::string::npos);
    CHECK(error_of({{"UDNNMEM_HOST_BUDGET", "0"}}) == "(no error)");
    CHECK(error_of({{"UDNNMEM_BUDGET", "12"}}) == "UDNNMEM_BUDGET=12: expected a unit behind it: did you mean 12GiB?; unset it for the default, auto");
    CHECK(error_of({{"UDNNMEM_BUDGET", "8000"}}).find("did you mean 8000MiB?") != std::string::npos);
    CHECK(error_of({{"UDNNMEM_HOST_BUDGET", "64"}}) == "UDNNMEM_HOST_BUDGET=64: expected a unit behind it: did you mean 64GiB?; unset it for the default, 80%");
    for (const char* fine : {"0", "0GiB", "0%", "32KiB", "80000", "100%"}) CHECK(parse({{"UDNNMEM_HOST_BUDGET", fine}}));
    CHECK(error_of({{"UDNNMEM_BUDGET", "1KiB"}}) == "UDNNMEM_BUDGET=1KiB: expected at least 64KiB, which is the least that a device maps, such as 12GiB, 60% or auto; unset it for the default, auto");
    for (const char* budget : {"64KiB", "900000", "0.1%"}) CHECK(error_of({{"UDNNMEM_BUDGET", budget}}) == "(no error)");
    CHECK(error_of({{"UDNNMEM_POLICY", "magic"}}) ==
          "UDNNMEM_POLICY=magic: expected demand, belady, vdnn, capuchin, g10, delta, chen, checkpoint-n3, checkpoint-n2, pofo or udnn; unset it for the default, udnn");
    CHECK(error_of({{"UDNNMEM_VERIFY", "1.5"}}).find("expected a share from 0 to 1") != std::string::npos);
    CHECK(error_of({{"UDNNMEM_VERIFY", "1e-3"}}).find("in plain decimals") != std::string::npos);
    CHECK(error_of({{"UDNNMEM_VERIFY", "1%"}}).find("expected a share from 0 to 1") != std::string::npos);
    CHECK(error_of({{"UDNNMEM_DEBUG", "loud"}}).find("error, warn, info or trace") != std::string::npos);
    CHECK(error_of({{"UDNNMEM_LANDING", "never"}}).find("unplanned or always") != std::string::npos);
    CHECK(error_of({{"UDNNMEM_DISABLE", "maybe"}}).find("1 or 0 (also on, yes, true and off, no, false)") != std::string::npos);
    CHECK(error_of({{"UDNNMEM_ONLY", "python,,train"}}).find("globs") != std::string::npos);
    for (const char* nothing : {" ", "python, ,train", "python,"}) CHECK(error_of({{"UDNNMEM_ONLY", nothing}}).find("globs") != std::string::npos);
    CHECK(error_of({{"UDNNMEM_ONLY", "train,[a"}}) == "UDNNMEM_ONLY=train,[a: expected a ] for the [ of [a, or \\[ for a bracket; unset it for the default, *");
    for (const char* open : {"a[", "[]", "[!]", "[^]a", "\\\\[a", "[a]["}) CHECK(error_of({{"UDNNMEM_ONLY", open}}).find("expected a ] for the [ of ") != std::string::npos);
    CHECK(error_of({{"UDNNMEM_ONLY", "a\\"}}).find("expected a character behind the \\ of a\\, or \\\\ for") != std::string::npos);
    for (const char* good : {"[ab]*", "[]a]", "[!]]", "[[:alpha:]]x", "\\[a", "a]", "a\\\\"}) CHECK(error_of({{"UDNNMEM_ONLY", good}}) == "(no error)");
    CHECK(error_of({{"UDNNMEM_TRACE", "out.%x.zst"}}).find("\"%x\"") != std::string::npos);
    for (const auto& row : option_rows()) CHECK(error_of({{row.variable, "\x01?,"}}).find('\n') == std::string::npos);
}

TEST_CASE("values of the other types") {
    const auto options = parse({{"UDNNMEM_VERIFY", "1"}, {"UDNNMEM_DEBUG", "TRACE"}, {"UDNNMEM_QUIET", "yes"}, {"UDNNMEM_TRACE", "off"},
                                {"UDNNMEM_ONLY", "python3*,train"}, {"UDNNMEM_DEBUG_FILE", "log.%p"}});
    REQUIRE(options);
    CHECK(options->verify == 1);
    CHECK(options->debug == Level::trace);
    CHECK(options->quiet);
    CHECK(options->trace.off());
    CHECK(options->debug_file.text == "log.%p");
    CHECK(options->only.match("python3.11"));
    CHECK(options->only.match("train"));
    CHECK_FALSE(options->only.match("trainer"));
}

TEST_CASE("a file that is said no to is off, and - is none") {
    for (const char* no : {"off", "0", "none", "No", "false"}) {
        INFO(no);
        const auto options = parse({{"UDNNMEM_TRACE", no}, {"UDNNMEM_PLAN", no}});
        REQUIRE(options);
        CHECK(options->trace.off());
        CHECK(options->plan.off());
    }
    CHECK(parse({{"UDNNMEM_TRACE", "1"}})->trace.text == "1");
    CHECK(error_of({{"UDNNMEM_TRACE", "-"}}) == "UDNNMEM_TRACE=-: expected a file's name (./- for one of that name), or off; unset it for the default, udnnmem.%h.%p.jsonl.zst");
}

TEST_CASE("a flag is its variable in lower case, and is checked alike") {
    for (const auto& row : option_rows()) {
        std::string flag = "--";
        for (const char* c = row.variable + std::strlen("UDNNMEM_"); *c; ++c) flag += *c == '_' ? '-' : static_cast<char>(std::tolower(*c));
        CHECK(flag == row.flag);
        CHECK(check_option(row, row.flag, row.otherwise));
        CHECK((row.value[0] == '\0') == (std::string(row.otherwise) == "0"));
    }
    const auto wrong = check_option(option_rows()[0], "--budget", "much");
    REQUIRE_FALSE(wrong);
    CHECK(wrong.error().message == "--budget much: expected a size such as 12GiB, 800MiB, 60% or auto; leave it out for the default, auto");
}

TEST_CASE("a variable that is no option is named, with the nearest one") {
    const char* const environment[] = {"UDNNMEM_BUGDET=1", "UDNNMEM_ZEBRA_CROSSING=1", "UDNNMEM_TEST_FULL=1", "UDNNMEM_BUDGET=1GiB", "HOME=/", nullptr};
    const auto lines = unknown_options(environment);
    REQUIRE(lines.size() == 2);
    CHECK(lines[0] == "UDNNMEM_BUGDET is no option of this version and was ignored; did you mean UDNNMEM_BUDGET?");
    CHECK(lines[1] == "UDNNMEM_ZEBRA_CROSSING is no option of this version and was ignored");
    const auto suggested = [](const char* variable) {
        const char* const alone[] = {variable, nullptr};
        const std::string line = unknown_options(alone).at(0);
        const auto at = line.find("did you mean ");
        return at == std::string::npos ? "" : line.substr(at + 13);
    };
    CHECK(suggested("UDNNMEM_BRAKE=1") == "");  // two of five letters away from TRACE
    CHECK(suggested("UDNNMEM_POLICE=1") == "UDNNMEM_POLICY?");
    CHECK(suggested("UDNNMEM_QUITE=1") == "UDNNMEM_QUIET?");
    CHECK(suggested("UDNNMEM_HOSTBUDGT=1") == "UDNNMEM_HOST_BUDGET?");
    CHECK(suggested("UDNNMEM_X=1") == "");
    CHECK(suggested("UDNNMEM_=1") == "");
}

TEST_CASE("a variable of a file's name that has no value is named") {
    const char* const environment[] = {"UDNNMEM_TRACE=t.%q{RANK}.%q{NODE}.%q{EMPTY}.%p", "NODE=1", "EMPTY=", "RANKS=2", "UDNNMEM_ONLY=%q{RANK}", nullptr};
    const auto lines = unknown_options(environment);
    REQUIRE(lines.size() == 2);
    CHECK(lines[0] == "UDNNMEM_TRACE=t.%q{RANK}.%q{NODE}.%q{EMPTY}.%p: RANK has no value here, so nothing stands in its place: set it, or name the file by %p (the process id)");
    CHECK(lines[1].find(": EMPTY has no value") != std::string::npos);
}

TEST_CASE("UDNNMEM_ONLY knows this process by its names") {
    auto options = parse({});
    CHECK(is_managed_process(*options));
    options = parse({{"UDNNMEM_ONLY", "unit-opt*"}});
    CHECK(is_managed_process(*options));
    options = parse({{"UDNNMEM_ONLY", "python*, unit-opt* "}});   // the spaces are nobody's name
    CHECK(is_managed_process(*options));
    options = parse({{"UDNNMEM_ONLY", "python*,train"}});
    CHECK_FALSE(is_managed_process(*options));
}

TEST_CASE("patterns: every sequence, and none that is unknown") {
    ::setenv("UDNNMEM_TEST_RANK", "3", 1);
    ::unsetenv("UDNNMEM_TEST_NONE");
    CHECK(expand_pattern("a.%q{UDNNMEM_TEST_RANK}.%%.%q{UDNNMEM_TEST_NONE}b") == "a.3.%.b");
    CHECK(expand_pattern("%p") == std::to_string(::getpid()));
    CHECK(expand_pattern("%h").find('%') == std::string::npos);
    CHECK_FALSE(expand_pattern("%h").empty());
    CHECK((names_process("a.%p") && names_process("%h%p.%%")));
    CHECK_FALSE((names_process("%%p") || names_process("%q{p}") || names_process("p")));
    for (const char* good : {"", "plain", "%h%p%%", "%q{A}"}) CHECK(check_pattern(good));
    for (const char* wrong : {"%", "%x", "a%", "%q", "%q{", "%q{}", "%qA}", "% p"}) {
        INFO(wrong);
        CHECK_FALSE(check_pattern(wrong));
        CHECK_FALSE(expand_pattern(wrong).empty());  // as it stands, and no hang
    }
}

TEST_CASE("the Markdown table has a line for each option") {
    const std::string table = options_as_markdown();
    CHECK(std::count(table.begin(), table.end(), '\n') == static_cast<std::ptrdiff_t>(option_rows().size() + 2));
    for (const auto& row : option_rows()) CHECK(table.find(std::string("| `") + row.variable + "` |") != std::string::npos);
}
