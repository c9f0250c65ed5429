// The parser's class, shared by the two files that hold its halves: parser.cpp (module level:
// functions, variables, initialisers) and parser_body.cpp (statements and operands).
//
// Bounds that hostile text meets: scopes nest at most 64 deep, operands 4; a variable is at most
// 2 GiB, one with an initialiser 64 MiB; registers of a range (%r<1000>) are made when first named.
#pragma once

#include <deque>
#include <map>
#include <unordered_map>

#include "tests/softgpu/ptx/ast.hpp"
#include "tests/softgpu/ptx/lexer.hpp"

namespace softgpu::ptx {

class Parser {
  public:
    Parser(std::string_view text, Program& program) : lexer_(text), program_(program) {}
    void run();

  private:
    struct Name {
        enum class Kind : std::uint8_t { reg, vector, variable, function } kind;
        std::uint32_t index;
        std::uint32_t width = 1;  // vector: so many registers from `index` on
    };
    struct Range {  // %r<N>
        std::uint64_t count;
        Type type;
    };
    struct PendingLabel {
        std::string_view name;
        std::uint32_t index;  // label made at the reference
        unsigned line;
    };
    struct Scope {
        std::unordered_map<std::string_view, Name> names;
        std::unordered_map<std::string_view, Range> ranges;
        std::unordered_map<std::string_view, std::uint32_t> labels, prototypes;
        std::vector<PendingLabel> pending;
    };
    struct Linkage {
        bool external = false, visible = false;
    };
    struct Declarator {
        Space space = Space::global;
        Type type = Type::none;
        std::size_t align = 0;
        unsigned lanes = 1;
        bool managed = false;
    };

    // parser.cpp
    void header_version();
    void header_target();
    void skip_section();
    void function(const Linkage&, bool entry);
    void parameter_list(std::uint32_t function, std::vector<Function::Slot>& slots, bool returned);
    void performance_directives(Function&);
    Declarator declarator(Space);
    std::uint32_t named_variable(const Declarator&, const Linkage&);
    void variables(Space, const Linkage&);
    void initialiser(Variable&, unsigned element, std::size_t& at, unsigned depth);
    void initial_value(Variable&, unsigned element, std::size_t& at);
    std::uint64_t small_number(std::uint64_t limit, const char* what);

    // parser_body.cpp
    void body(std::uint32_t function);
    void statement();
    void directive();
    void registers();
    void label_or_instruction();
    void labelled_list(std::uint32_t label, std::string_view name);
    std::size_t prototype_parameters(std::vector<std::size_t>& sizes);
    void instruction(std::string_view opcode, Instruction&);
    void vector_mov(Instruction&);
    Operand operand(const Instruction&, unsigned depth);
    Operand name_operand(const Instruction&, const Token& word);
    Operand immediate();
    Operand address(const Instruction&);
    std::uint32_t label(std::string_view name, unsigned line);
    void open_scope();
    void close_scope();
    const Name* find(std::string_view name);

    Token expect(char mark);
    Token expect_word(const char* what);
    bool accept(char mark);
    [[noreturn]] void refuse(const Token& at, const std::string& what) const;

    Lexer lexer_;
    Program& program_;
    std::deque<std::string> numbered_;   // names that the text has not: of variables that are declared by number
    std::unordered_map<std::string_view, Name> unit_;
    std::vector<Scope> scopes_;
    Function* function_ = nullptr;
    // Initialisers may name what follows them.
    struct LateName { std::uint32_t variable; std::size_t relocation; std::string_view name; unsigned line; };
    std::vector<LateName> late_;
};

}  // namespace softgpu::ptx
