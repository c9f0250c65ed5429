// Function bodies: scopes, registers, labels, instructions and their operands.
#include <algorithm>
#include <cstring>

#include "tests/softgpu/ptx/parser_state.hpp"

namespace softgpu::ptx {

using Kind = Token::Kind;

namespace {
constexpr std::size_t max_scopes = 64, max_registers = 1u << 20;
}

void Parser::open_scope() {
    if (scopes_.size() >= max_scopes) refuse(lexer_.peek(), "scopes nest too deep");
    scopes_.emplace_back();
}

// Labels that are still unknown may be in the scope around.
void Parser::close_scope() {
    Scope inner = std::move(scopes_.back());
    scopes_.pop_back();
    if (inner.pending.empty()) return;
    if (scopes_.size() <= 1) {
        const PendingLabel& p = inner.pending.front();
        throw Refusal(p.line, "unknown name '" + std::string(p.name) + "'");
    }
    Scope& outer = scopes_.back();
    outer.pending.insert(outer.pending.end(), inner.pending.begin(), inner.pending.end());
}

const Parser::Name* Parser::find(std::string_view name) {
    for (std::size_t i = scopes_.size(); i-- > 0;) {
        Scope& scope = scopes_[i];
        if (auto found = scope.names.find(name); found != scope.names.end()) return &found->second;
        // %r12 of a range %r<100>: made at its first use.
        std::size_t digits = name.size();
        while (digits > 1 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
        for (; digits < name.size(); ++digits) {
            if (name[digits] == '0' && digits + 1 < name.size()) continue;
            auto range = scope.ranges.find(name.substr(0, digits));
            if (range == scope.ranges.end() || name.size() - digits > 9) continue;
            std::uint64_t number = 0;
            for (char c : name.substr(digits)) number = number * 10 + static_cast<unsigned>(c - '0');
            if (number >= range->second.count) continue;
            if (function_->registers.size() >= max_registers) refuse(lexer_.peek(), "too many registers");
            const auto index = static_cast<std::uint32_t>(function_->registers.size());
            function_->registers.push_back({range->second.type});
            return &(scope.names[name] = {Name::Kind::reg, index});
        }
    }
    auto found = unit_.find(name);
    return found == unit_.end() ? nullptr : &found->second;
}

std::uint32_t Parser::label(std::string_view name, unsigned line) {
    for (std::size_t i = scopes_.size(); i-- > 1;)
        if (auto found = scopes_[i].labels.find(name); found != scopes_[i].labels.end()) return found->second;
    for (const PendingLabel& p : scopes_.back().pending)
        if (p.name == name) return p.index;
    scopes_.back().pending.push_back({name, function_->labels, line});
    return function_->labels++;
}

void Parser::body(std::uint32_t) {
    open_scope();
    expect('{');
    for (;;) {
        if (lexer_.peek().kind == Kind::end) refuse(lexer_.peek(), "function without an end");
        if (accept('}')) {
            close_scope();
            if (scopes_.size() == 1) return;
        } else if (accept('{')) {
            open_scope();
        } else if (!accept(';')) {
            statement();
        }
    }
}

void Parser::statement() {
    if (lexer_.peek().kind == Kind::dot) directive();
    else label_or_instruction();
}

void Parser::directive() {
    const Token t = lexer_.next();
    if (t.text == "reg") registers();
    else if (t.text == "local") variables(Space::local, {});
    else if (t.text == "shared") variables(Space::shared, {});
    else if (t.text == "param") variables(Space::param, {});
    else if (t.text == "global") variables(Space::global, {});
    else if (t.text == "const") variables(Space::constant, {});
    else if (t.text == "loc") {
        for (int i = 0; i < 3; ++i) small_number(~0ULL, ".loc");
        while (accept(',')) {  // function_name $L, inlined_at 1 2 3
            while (lexer_.peek().kind == Kind::word || lexer_.peek().kind == Kind::integer || lexer_.peek().is('+')) {
                if (lexer_.peek().line != t.line) break;
                lexer_.next();
            }
        }
    } else if (t.text == "pragma") {
        while (lexer_.peek().kind == Kind::string || lexer_.peek().is(',')) lexer_.next();
        expect(';');
    } else if (t.text == "file") {
        small_number(~0ULL, ".file");
        if (lexer_.peek().kind == Kind::string) lexer_.next();
    } else {
        refuse(t, "unknown directive");
    }
}

void Parser::registers() {
    Token t = lexer_.next();
    const std::uint32_t width = t.is_dot("v2") ? 2 : t.is_dot("v4") ? 4 : 1;
    if (width > 1) t = lexer_.next();
    const auto type = t.kind == Kind::dot ? type_of(t.text) : std::nullopt;
    if (!type) refuse(t, "unknown register type");
    do {
        const Token name = expect_word("a register's name");
        if (accept('<')) {
            const std::uint64_t count = small_number(1ULL << 32, "register count");
            expect('>');
            if (width > 1) refuse(name, "a range of vector registers is not known");
            scopes_.back().ranges[name.text] = {count, *type};
        } else {
            if (function_->registers.size() + width > max_registers) refuse(name, "too many registers");
            const auto index = static_cast<std::uint32_t>(function_->registers.size());
            for (std::uint32_t i = 0; i < width; ++i) function_->registers.push_back({*type});
            scopes_.back().names[name.text] = {width > 1 ? Name::Kind::vector : Name::Kind::reg, index, width};
        }
    } while (accept(','));
    expect(';');
}

void Parser::label_or_instruction() {
    Instruction in;
    in.line = lexer_.peek().line;
    if (accept('@')) {
        in.guard_negated = accept('!');
        const Token name = expect_word("a predicate");
        const Name* found = find(name.text);
        if (!found || found->kind != Name::Kind::reg) refuse(name, "unknown predicate");
        in.guard = found->index;
        if (function_->registers[in.guard].type != Type::pred) refuse(name, "not a predicate");
    }
    const Token word = expect_word("an instruction");
    if (in.guard == no_index && accept(':')) {
        auto& labels = scopes_.back().labels;
        if (labels.count(word.text)) refuse(word, "label defined twice");
        std::uint32_t index = no_index;
        auto& pending = scopes_.back().pending;
        for (auto p = pending.begin(); p != pending.end();) {
            if (p->name != word.text) { ++p; continue; }
            if (index == no_index) {
                index = p->index;
                p = pending.erase(p);
            } else {
                // A second index for the same name came up from an inner scope: both labels here.
                Instruction also;
                also.line = word.line;
                also.label = p->index;
                function_->body.push_back(std::move(also));
                p = pending.erase(p);
            }
        }
        if (index == no_index) index = function_->labels++;
        labels[word.text] = index;
        if (lexer_.peek().kind == Kind::dot && (lexer_.peek().text == "branchtargets" || lexer_.peek().text == "callprototype" ||
                                               lexer_.peek().text == "calltargets"))
            return labelled_list(index, word.text);
        in.label = index;
        function_->body.push_back(std::move(in));
        return;
    }
    instruction(word.text, in);
}

void Parser::labelled_list(std::uint32_t index, std::string_view name) {
    const Token t = lexer_.next();
    if (t.text == "branchtargets") {
        auto& list = function_->targets[index];
        do {
            const Token target = expect_word("a label");
            list.push_back(label(target.text, target.line));
        } while (accept(','));
    } else if (t.text == "calltargets") {
        while (!lexer_.peek().is(';') && lexer_.peek().kind != Kind::end) lexer_.next();
    } else {
        Prototype p;
        if (lexer_.peek().is('(')) prototype_parameters(p.returns);
        expect_word("the name _");
        if (lexer_.peek().is('(')) prototype_parameters(p.params);
        if (lexer_.peek().is_dot("noreturn")) lexer_.next();
        scopes_.back().prototypes[name] = static_cast<std::uint32_t>(function_->prototypes.size());
        function_->prototypes.push_back(std::move(p));
    }
    expect(';');
}

std::size_t Parser::prototype_parameters(std::vector<std::size_t>& sizes) {
    expect('(');
    if (accept(')')) return 0;
    do {
        const Token t = lexer_.next();
        if (!t.is_dot("param")) refuse(t, "expected .param");
        const std::uint32_t v = named_variable(declarator(Space::param), {});
        sizes.push_back(program_.variables[v].bytes);
    } while (accept(','));
    expect(')');
    return sizes.size();
}

void Parser::instruction(std::string_view opcode, Instruction& in) {
    in.opcode = opcode;
    while (lexer_.peek().kind == Kind::dot) in.modifiers.push_back(lexer_.next().text);
    if (in.modifiers.size() > 16) refuse(lexer_.peek(), "too many modifiers");
    if (!lexer_.peek().is(';')) {
        do in.operands.push_back(operand(in, 0));
        while (accept(','));
    }
    expect(';');
    if (in.opcode == "mov" && !in.modifiers.empty() && (in.modifiers[0] == "v2" || in.modifiers[0] == "v4")) return vector_mov(in);
    function_->body.push_back(std::move(in));
}

// One mov an element, by way of registers of its own: what is read may be written too.
void Parser::vector_mov(Instruction& in) {
    const std::size_t width = in.modifiers[0] == "v2" ? 2 : 4;
    const auto type = in.modifiers.size() == 2 ? type_of(in.modifiers[1]) : std::nullopt;
    const auto whole = [width](const Operand& o) { return o.kind == Operand::Kind::vector && o.items.size() == width; };
    if (!type || in.operands.size() != 2 || !whole(in.operands[0]) || !whole(in.operands[1])) refuse(lexer_.peek(), "mov of a vector: two operands of its width expected");
    if (function_->registers.size() + width > max_registers) refuse(lexer_.peek(), "too many registers");
    const auto first = static_cast<std::uint32_t>(function_->registers.size());
    for (const bool out : {false, true})
        for (std::uint32_t i = 0; i < width; ++i) {
            Operand between;
            between.kind = Operand::Kind::reg;
            between.index = first + i;
            if (!out) function_->registers.push_back({*type});
            Instruction one = in;
            one.modifiers.erase(one.modifiers.begin());
            one.operands = {out ? in.operands[0].items[i] : between, out ? between : in.operands[1].items[i]};
            function_->body.push_back(std::move(one));
        }
}

Operand Parser::immediate() {
    Operand o;
    bool minus = false, invert = false;
    while (lexer_.peek().is('-') || lexer_.peek().is('~') || lexer_.peek().is('+')) {
        const Token sign = lexer_.next();
        if (sign.is('-')) minus = !minus;
        if (sign.is('~')) invert = !invert;
    }
    const Token t = lexer_.next();
    if (t.kind == Kind::integer) {
        o.kind = Operand::Kind::integer;
        o.bits = invert ? ~t.bits : t.bits;
        if (minus) o.bits = 0 - o.bits;
    } else if (t.kind == Kind::float32) {
        o.kind = Operand::Kind::float32;
        o.bits = minus ? t.bits ^ 0x80000000u : t.bits;
    } else if (t.kind == Kind::float64) {
        o.kind = Operand::Kind::float64;
        o.bits = minus ? t.bits ^ (1ULL << 63) : t.bits;
    } else {
        refuse(t, "expected a number");
    }
    return o;
}

Operand Parser::address(const Instruction& in) {
    Operand o;
    o.kind = Operand::Kind::address;
    const Token first = lexer_.peek();
    if (first.kind == Kind::word) {
        lexer_.next();
        o.items.push_back(name_operand(in, first));
        const auto kind = o.items[0].kind;
        if (kind != Operand::Kind::reg && kind != Operand::Kind::variable) refuse(first, "not an address");
        while (lexer_.peek().is('+') || lexer_.peek().is('-')) {
            const Operand add = immediate();
            if (add.kind != Operand::Kind::integer) refuse(lexer_.peek(), "offset is not an integer");
            o.offset = static_cast<std::int64_t>(static_cast<std::uint64_t>(o.offset) + add.bits);
        }
    } else {
        const Operand absolute = immediate();
        if (absolute.kind != Operand::Kind::integer) refuse(first, "address is not an integer");
        o.items.push_back(absolute);
    }
    if (lexer_.peek().is(',')) refuse(lexer_.peek(), "texture and surface operands are not known");
    expect(']');
    return o;
}

Operand Parser::name_operand(const Instruction& in, const Token& word) {
    Operand o;
    if (word.text == "_") return o;
    if (word.text == "WARP_SZ") {
        o.kind = Operand::Kind::integer;
        o.bits = 32;
        return o;
    }
    if (const Name* found = find(word.text)) {
        o.index = found->index;
        if (found->kind == Name::Kind::vector) {
            Operand element;
            element.kind = Operand::Kind::reg;
            for (std::uint32_t i = 0; i < found->width; ++i) {
                element.index = found->index + i;
                o.items.push_back(element);
            }
            o.kind = Operand::Kind::vector;
            if (lexer_.peek().kind != Kind::dot) return o;
            const Token which = lexer_.next();
            const std::size_t at = std::string_view("xyzw").find(which.text), also = std::string_view("rgba").find(which.text);
            const std::size_t i = std::min(at, also);
            if (which.text.size() != 1 || i >= found->width) refuse(which, "no such element of a vector register");
            return o.items[i];
        }
        o.kind = found->kind == Name::Kind::reg        ? Operand::Kind::reg
                 : found->kind == Name::Kind::variable ? Operand::Kind::variable
                                                       : Operand::Kind::function;
        if (o.kind == Operand::Kind::variable && accept('[')) {  // an element: by number, or by a register's value
            const std::size_t element = size_of(program_.variables[o.index].type);
            if (lexer_.peek().kind == Kind::word) {
                const Token by = lexer_.next();
                const Name* index = find(by.text);
                if (!index || index->kind != Name::Kind::reg) refuse(by, "bad index");
                Operand i;
                i.kind = Operand::Kind::reg;
                i.index = index->index;
                i.bits = element;
                o.items.push_back(i);
            } else {
                o.offset = static_cast<std::int64_t>(small_number(1u << 31, "index") * element);
            }
            expect(']');
        }
        return o;
    }
    if (word.text[0] == '%') {
        std::string name(word.text);
        if (lexer_.peek().kind == Kind::dot) name += "." + std::string(lexer_.next().text);
        const Special* s = special(name);
        if (!s) refuse(word, "unknown register");
        o.kind = Operand::Kind::special;
        o.index = index_of(*s);
        return o;
    }
    for (std::size_t i = scopes_.size(); i-- > 1;)
        if (auto p = scopes_[i].prototypes.find(word.text); p != scopes_[i].prototypes.end()) {
            o.kind = Operand::Kind::prototype;
            o.index = p->second;
            return o;
        }
    if (in.opcode != "bra" && in.opcode != "brx" && in.opcode != "call") refuse(word, "unknown name");
    o.kind = Operand::Kind::label;
    o.index = label(word.text, word.line);
    return o;
}

Operand Parser::operand(const Instruction& in, unsigned depth) {
    if (depth > 4) refuse(lexer_.peek(), "operand nests too deep");
    const Token t = lexer_.peek();
    Operand o;
    if (t.is('[')) {
        lexer_.next();
        return address(in);
    }
    if (t.is('{') || t.is('(')) {
        lexer_.next();
        const char close = t.is('{') ? '}' : ')';
        o.kind = t.is('{') ? Operand::Kind::vector : Operand::Kind::list;
        if (accept(close)) return o;
        do o.items.push_back(operand(in, depth + 1));
        while (accept(','));
        if (o.items.size() > 256) refuse(t, "too many operands");
        expect(close);
        return o;
    }
    if (t.is('!')) {
        lexer_.next();
        o = operand(in, depth + 1);
        if (o.kind != Operand::Kind::reg) refuse(t, "only a predicate can be negated");
        o.negate = !o.negate;
        return o;
    }
    if (t.kind != Kind::word) return immediate();
    lexer_.next();
    o = name_operand(in, t);
    if (o.kind == Operand::Kind::variable && (lexer_.peek().is('+') || lexer_.peek().is('-'))) {
        const Operand add = immediate();
        if (add.kind != Operand::Kind::integer) refuse(t, "offset is not an integer");
        o.offset = static_cast<std::int64_t>(static_cast<std::uint64_t>(o.offset) + add.bits);
    }
    if (accept('|')) {
        const Token second = expect_word("a second destination");
        o.pair = true;
        const Operand other = name_operand(in, second);
        if (o.kind == Operand::Kind::vector || other.kind == Operand::Kind::vector) refuse(second, "a vector register is no destination of two");
        o.items.push_back(other);
    }
    return o;
}

}  // namespace softgpu::ptx
