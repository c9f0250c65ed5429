// --help: lines that fit a terminal, without the backquotes that option texts have for the README's table.
#include <string>

#include "shim/cli/commands.hpp"

namespace udnnmem::cli {
namespace {

constexpr std::size_t widest = 100, first_column = 32;

// `text` in lines of at most `width`, broken at spaces.
std::string folded(const std::string& text, std::size_t width) {
    std::string out;
    std::size_t column = 0;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find_first_of(" \n", at), text.size());
        const std::size_t length = end - at;
        if (column > 0) {
            const bool breaks = text[at - 1] == '\n' || column + 1 + length > width;
            out += breaks ? '\n' : ' ';
            column = breaks ? 0 : column + 1;
        }
        out.append(text, at, length);
        column += length;
        at = end + 1;
    }
    return out;
}

std::string plain(std::string text) {
    std::erase(text, '`');
    return text;
}

class HelpFormatter : public CLI::Formatter {
  public:
    HelpFormatter() { column_width(first_column); }

    std::string make_usage(const CLI::App* app, std::string name) const override {
        std::string usage = CLI::Formatter::make_usage(app, name);
        if (app->get_name() == "run") usage.insert(usage.find_last_not_of('\n') + 1, " [--] COMMAND...");  // which the parser never sees
        return usage;
    }

    std::string make_footer(const CLI::App* app) const override { return folded(app->get_footer(), widest) + "\n"; }

    std::string make_option(const CLI::Option* option, bool positional) const override {
        return row(make_option_name(option, positional) + make_option_opts(option), make_option_desc(option));
    }

    std::string make_subcommand(const CLI::App* command) const override { return row(command->get_name(), command->get_description()); }

  private:
    std::string row(const std::string& name, const std::string& text) const {
        std::stringstream out;
        CLI::detail::format_help(out, name, folded(plain(text), widest - first_column), first_column);
        return out.str();
    }
};

}  // namespace

std::shared_ptr<CLI::Formatter> help_formatter() { return std::make_shared<HelpFormatter>(); }

}  // namespace udnnmem::cli
