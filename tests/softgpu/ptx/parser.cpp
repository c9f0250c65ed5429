// Module level of the parser: directives, functions' heads, variables and their initialisers.
#include "tests/softgpu/ptx/parser.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "tests/softgpu/ptx/parser_state.hpp"

namespace softgpu::ptx {

static constexpr std::uint64_t max_numbered = 4096;   // variables in one declaration

using Kind = Token::Kind;

void Parser::refuse(const Token& at, const std::string& what) const {
    std::string text(at.text.substr(0, 60));
    for (char& c : text)
        if (static_cast<unsigned char>(c) < 32 || static_cast<unsigned char>(c) > 126) c = '?';
    throw Refusal(at.line, at.kind == Kind::end ? what + " at the end of the text" : what + " at '" + text + "'");
}
Token Parser::expect(char mark) {
    if (!lexer_.peek().is(mark)) refuse(lexer_.peek(), std::string("expected '") + mark + "'");
    return lexer_.next();
}
Token Parser::expect_word(const char* what) {
    if (lexer_.peek().kind != Kind::word) refuse(lexer_.peek(), std::string("expected ") + what);
    return lexer_.next();
}
bool Parser::accept(char mark) {
    if (!lexer_.peek().is(mark)) return false;
    lexer_.next();
    return true;
}
std::uint64_t Parser::small_number(std::uint64_t limit, const char* what) {
    const Token t = lexer_.next();
    if (t.kind != Kind::integer || t.bits > limit) refuse(t, std::string("bad ") + what);
    return t.bits;
}

void Parser::run() {
    Linkage linkage;
    while (lexer_.peek().kind != Kind::end) {
        const Token t = lexer_.next();
        if (t.is(';')) continue;
        if (t.kind != Kind::dot) refuse(t, "expected a directive");
        if (t.text == "version") header_version();
        else if (t.text == "target") header_target();
        else if (t.text == "address_size") {
            if (small_number(64, ".address_size") != 64) refuse(t, "only .address_size 64 is known");
        } else if (t.text == "extern") linkage.external = true;
        else if (t.text == "visible" || t.text == "weak" || t.text == "common") linkage.visible = true;
        else if (t.text == "entry" || t.text == "func") function(linkage, t.text == "entry"), linkage = {};
        else if (t.text == "global") variables(Space::global, linkage), linkage = {};
        else if (t.text == "const") variables(Space::constant, linkage), linkage = {};
        else if (t.text == "shared") variables(Space::shared, linkage), linkage = {};
        else if (t.text == "file") {
            small_number(~0ULL, ".file");
            if (lexer_.peek().kind == Kind::string) lexer_.next();
            while (accept(',')) small_number(~0ULL, ".file");
        } else if (t.text == "section") skip_section();
        else if (t.text == "pragma") {
            while (lexer_.peek().kind == Kind::string || lexer_.peek().is(',')) lexer_.next();
        } else refuse(t, "unknown directive");
    }
    for (const LateName& late : late_) {
        auto found = unit_.find(late.name);
        if (found == unit_.end() || found->second.kind == Name::Kind::reg)
            throw Refusal(late.line, "unknown name '" + std::string(late.name) + "' in an initialiser");
        Relocation& r = program_.variables[late.variable].relocations[late.relocation];
        r.function = found->second.kind == Name::Kind::function;
        r.symbol = found->second.index;
    }
}

void Parser::header_version() {
    const Token t = lexer_.next();
    int major = 0, minor = 0;
    const char* end = t.text.data() + t.text.size();
    auto [next, error] = std::from_chars(t.text.data(), end, major);
    if (error == std::errc() && next < end && *next == '.') std::from_chars(next + 1, end, minor);
    if (major < 1 || major > 99 || minor < 0 || minor > 9) refuse(t, "bad .version");
    program_.ptx_version = std::max(program_.ptx_version, major * 10 + minor);
}

void Parser::header_target() {
    do {
        const Token t = expect_word("a target");
        if (t.text.substr(0, 3) == "sm_") {
            int sm = 0;
            std::from_chars(t.text.data() + 3, t.text.data() + t.text.size(), sm);
            program_.sm_version = std::max(program_.sm_version, sm);
        }
    } while (accept(','));
}

void Parser::skip_section() {
    lexer_.next();
    expect('{');
    while (!lexer_.peek().is('}')) {
        if (lexer_.peek().kind == Kind::end) refuse(lexer_.peek(), "section without an end");
        lexer_.next();
    }
    lexer_.next();
}

void Parser::function(const Linkage& linkage, bool entry) {
    // A name may be declared before it is defined: one index for both.
    Function f;
    f.entry = entry;
    f.visible = linkage.visible || entry;
    const std::uint32_t scratch = static_cast<std::uint32_t>(program_.functions.size());
    program_.functions.emplace_back();
    scopes_.assign(1, {});
    if (lexer_.peek().is_dot("attribute")) {
        lexer_.next();
        expect('(');
        while (!lexer_.peek().is(')') && lexer_.peek().kind != Kind::end) lexer_.next();
        expect(')');
    }
    program_.functions[scratch] = std::move(f);
    function_ = &program_.functions[scratch];
    if (!entry && lexer_.peek().is('(')) parameter_list(scratch, program_.functions[scratch].returns, true);
    const Token name = expect_word("a function's name");
    function_->name = std::string(name.text);
    function_->line = name.line;
    if (lexer_.peek().is('(')) parameter_list(scratch, function_->params, false);
    performance_directives(*function_);

    std::uint32_t index = scratch;
    auto known = unit_.find(name.text);
    if (known != unit_.end()) {
        if (known->second.kind != Name::Kind::function) refuse(name, "name defined twice");
        index = known->second.index;
        if (program_.functions[index].defined && lexer_.peek().is('{')) refuse(name, "function defined twice");
    } else {
        unit_.emplace(name.text, Name{Name::Kind::function, index});
    }
    if (lexer_.peek().is('{')) {
        if (index != scratch) {
            program_.functions[index] = std::move(program_.functions[scratch]);
            program_.functions.pop_back();
        }
        function_ = &program_.functions[index];
        function_->defined = true;
        body(index);
    } else {
        expect(';');
        if (index != scratch) program_.functions.pop_back();
    }
    function_ = nullptr;
    scopes_.clear();
}

void Parser::parameter_list(std::uint32_t, std::vector<Function::Slot>& slots, bool returned) {
    expect('(');
    if (accept(')')) return;
    do {
        const Token t = lexer_.next();
        if (t.is_dot("reg")) {
            const Token type = lexer_.next();
            const auto known = type.kind == Kind::dot ? type_of(type.text) : std::nullopt;
            if (!known) refuse(type, "unknown register type");
            const Token name = expect_word("a parameter's name");
            const auto index = static_cast<std::uint32_t>(function_->registers.size());
            function_->registers.push_back({*known});
            scopes_[0].names[name.text] = {Name::Kind::reg, index};
            slots.push_back({true, index});
        } else if (t.is_dot("param")) {
            const std::size_t locals = function_->locals.size();
            const std::uint32_t v = named_variable(declarator(Space::param), {});
            function_->locals.resize(locals);  // a parameter is the caller's memory
            program_.variables[v].returned = returned;
            slots.push_back({false, v});
        } else {
            refuse(t, "expected .param or .reg");
        }
    } while (accept(','));
    expect(')');
}

void Parser::performance_directives(Function& f) {
    while (lexer_.peek().kind == Kind::dot) {
        const Token t = lexer_.next();
        if (t.text == "maxntid" || t.text == "reqntid") {
            std::uint64_t threads = 1;
            do threads *= small_number(1024, "thread count");
            while (accept(',') && threads <= 1024);
            if (threads == 0 || threads > 1024) refuse(t, "bad thread count");
            f.max_threads = static_cast<std::uint32_t>(threads);
        } else if (t.text == "minnctapersm" || t.text == "maxnctapersm" || t.text == "maxnreg" || t.text == "maxclusterrank") {
            small_number(~0ULL, "directive's number");
        } else if (t.text == "pragma") {
            while (lexer_.peek().kind == Kind::string || lexer_.peek().is(',')) lexer_.next();
            expect(';');
        } else if (t.text != "noreturn" && t.text != "unified" && t.text != "abi_preserve" && t.text != "abi_preserve_control") {
            refuse(t, "unknown directive of a function");
        }
    }
}

Parser::Declarator Parser::declarator(Space space) {
    Declarator d;
    d.space = space;
    while (lexer_.peek().kind == Kind::dot) {
        const Token t = lexer_.next();
        if (t.text == "align") {
            d.align = small_number(1u << 16, ".align");
            if (d.align == 0 || (d.align & (d.align - 1))) refuse(t, "alignment is not a power of two");
        } else if (t.text == "v2") d.lanes = 2;
        else if (t.text == "v4") d.lanes = 4;
        else if (t.text == "ptr") {
            while (lexer_.peek().kind == Kind::dot) {  // what it points to: .global .align N
                const Token p = lexer_.next();
                if (p.text == "align") small_number(~0ULL, ".align");
            }
        } else if (t.text == "attribute") {
            expect('(');
            while (!lexer_.peek().is(')')) {
                const Token a = lexer_.next();
                if (a.kind == Kind::end) refuse(a, "attribute without an end");
                if (a.is_dot("managed")) d.managed = true;
            }
            expect(')');
        } else if (t.text == "unified") {
            // Address the same on host and device: all of ours are.
        } else if (auto type = type_of(t.text); type && *type != Type::pred) {
            d.type = *type;
        } else {
            refuse(t, "unknown type or attribute of a variable");
        }
    }
    if (d.type == Type::none) refuse(lexer_.peek(), "variable without a type");
    return d;
}

std::uint32_t Parser::named_variable(const Declarator& d, const Linkage& linkage) {
    const Token name = expect_word("a variable's name");
    Variable v;
    v.name = std::string(name.text);
    v.space = d.space;
    v.type = d.type;
    v.external = linkage.external;
    v.visible = linkage.visible || linkage.external;
    v.managed = d.managed;
    const std::size_t element = std::size_t{size_of(d.type)} * d.lanes;
    v.align = d.align ? d.align : element;
    if (function_ && accept('<')) {   // %P<2>: %P0 and %P1, of one element each
        v.bytes = element;
        const std::uint64_t numbers = small_number(max_numbered, "number of variables");
        if (numbers == 0) refuse(name, "no variables");
        expect('>');
        for (std::uint64_t i = 0; i < numbers; ++i) {
            v.name = numbered_.emplace_back(std::string(name.text) + std::to_string(i));
            const auto index = static_cast<std::uint32_t>(program_.variables.size());
            program_.variables.push_back(v);
            scopes_.back().names[numbered_.back()] = {Name::Kind::variable, index};
            if (d.space == Space::local || d.space == Space::param) function_->locals.push_back(index);
        }
        return static_cast<std::uint32_t>(program_.variables.size() - 1);
    }
    std::size_t count = 1;
    bool open = false;  // [] : size from the initialiser
    for (unsigned dimension = 0; lexer_.peek().is('['); ++dimension) {
        lexer_.next();
        if (accept(']')) {
            if (dimension) refuse(name, "only the first dimension may be open");
            open = true;
            continue;
        }
        count *= small_number(1u << 31, "array size");
        if (count > (std::size_t{1} << 31)) refuse(name, "variable is too large");
        expect(']');
    }
    v.bytes = open ? 0 : count * element;
    if (v.bytes > (std::size_t{1} << 31)) refuse(name, "variable is too large");
    const auto index = static_cast<std::uint32_t>(program_.variables.size());
    if (accept('=')) {
        if (v.space != Space::global && v.space != Space::constant) refuse(name, "an initialiser is only for .global and .const");
        if (v.bytes > (std::size_t{64} << 20)) refuse(name, "initialised variable is too large");
        v.initial.resize(v.bytes);
        program_.variables.push_back(v);
        std::size_t at = 0;
        initialiser(program_.variables[index], size_of(d.type), at, 0);
        if (open) {
            program_.variables[index].bytes = program_.variables[index].initial.size();
        } else if (at > v.bytes) {
            refuse(name, "too many initial values");
        }
    } else {
        program_.variables.push_back(std::move(v));
    }
    const Name entry{Name::Kind::variable, index};
    if (name.text == "_") return index;
    if (function_) {
        scopes_.back().names[name.text] = entry;
        if (d.space == Space::local || d.space == Space::param) function_->locals.push_back(index);
    } else {
        auto [known, fresh] = unit_.emplace(name.text, entry);
        if (!fresh) {  // .extern first, then the definition
            if (known->second.kind != Name::Kind::variable) refuse(name, "name defined twice");
            Variable& first = program_.variables[known->second.index];
            if (!first.external && !linkage.external) refuse(name, "variable defined twice");
            if (first.external && !linkage.external) {
                first.resolved = index;
                known->second = entry;
            }
        }
    }
    return index;
}

void Parser::variables(Space space, const Linkage& linkage) {
    const Declarator d = declarator(space);
    do named_variable(d, linkage);
    while (accept(','));
    expect(';');
}

void Parser::initialiser(Variable& v, unsigned element, std::size_t& at, unsigned depth) {
    if (!lexer_.peek().is('{')) return initial_value(v, element, at);
    if (depth > 8) refuse(lexer_.peek(), "initialiser nests too deep");
    lexer_.next();
    if (accept('}')) return;
    do initialiser(v, element, at, depth + 1);
    while (accept(','));
    expect('}');
}

// A number, a name, name+number, generic(name), or 0xFF(name): byte 0 of an address and so on.
void Parser::initial_value(Variable& v, unsigned element, std::size_t& at) {
    auto room = [&]() {
        if (at + element > (std::size_t{64} << 20)) refuse(lexer_.peek(), "too many initial values");
        if (at + element > v.initial.size()) {
            if (v.bytes) refuse(lexer_.peek(), "too many initial values");
            v.initial.resize(at + element);
        }
    };
    if (lexer_.peek().kind == Kind::word) {
        Token word = lexer_.next();
        if (word.text == "generic" && accept('(')) {
            word = expect_word("a name");
            expect(')');
        }
        if (element != 8) refuse(word, "an address needs 8 bytes");
        Relocation r;
        r.offset = at;
        if (lexer_.peek().is('+') || lexer_.peek().is('-')) {
            const bool minus = lexer_.next().is('-');
            r.addend = static_cast<std::int64_t>(small_number(1u << 31, "offset"));
            if (minus) r.addend = -r.addend;
        }
        room();
        late_.push_back({static_cast<std::uint32_t>(&v - program_.variables.data()), v.relocations.size(), word.text, word.line});
        v.relocations.push_back(r);
        at += element;
        return;
    }
    const unsigned line = lexer_.peek().line;
    const Operand value = immediate();
    std::uint64_t bits = value.bits;
    if (value.kind == Operand::Kind::float64 && v.type == Type::f32) {
        double d;
        std::memcpy(&d, &bits, 8);
        const float f = static_cast<float>(d);
        bits = 0;
        std::memcpy(&bits, &f, 4);
    } else if (value.kind == Operand::Kind::integer && is_float(v.type)) {
        throw Refusal(line, "an integer where a float is expected");
    } else if (value.kind == Operand::Kind::float32 && v.type == Type::f64) {
        throw Refusal(line, "a 32-bit float where a 64-bit one is expected");
    }
    room();
    std::memcpy(v.initial.data() + at, &bits, std::min<std::size_t>(element, 8));
    at += element;
}

void parse(std::string_view text, Program& program) { Parser(text, program).run(); }

void resolve(Program& program) {
    std::map<std::string_view, std::uint32_t> functions, variables;
    for (std::uint32_t i = 0; i < program.functions.size(); ++i) {
        const Function& f = program.functions[i];
        if (!f.defined || !f.visible) continue;
        functions.emplace(f.name, i);  // the first wins: weak definitions are alike
    }
    for (Function& f : program.functions) {
        if (f.defined) continue;
        auto found = functions.find(f.name);
        if (found != functions.end()) f.resolved = found->second;
    }
    for (std::uint32_t i = 0; i < program.variables.size(); ++i) {
        const Variable& v = program.variables[i];
        if ((v.space == Space::global || v.space == Space::constant) && v.visible && !v.external) variables.emplace(v.name, i);
    }
    for (Variable& v : program.variables) {
        if (!v.external || v.resolved >= 0) continue;
        auto found = variables.find(v.name);
        if (found != variables.end()) v.resolved = found->second;
    }
}

}  // namespace softgpu::ptx
