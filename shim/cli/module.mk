CLI_LIBRARIES := executor frameworks options host live_reader policy trace trace_writer
CLI_SOURCES := $(call together,$(filter-out shim/cli/main.cpp,$(wildcard shim/cli/*.cpp)))
# The page of the HTML report travels as text.
PAGE_PARTS := $(addprefix shim/cli/page/page.,html css js)
$(B)/gen/shim/cli/page.inc: $(PAGE_PARTS)
	@mkdir -p $(@D)
	@for part in html css js; do printf 'extern const char page_%s[] = R"~~~~(' $$part; cat shim/cli/page/page.$$part; printf ')~~~~";\n'; done > $@
$(call objects,$(CLI_SOURCES)): $(B)/gen/shim/cli/page.inc
FLAGS_shim_cli_ := -I$(B)/gen
$(call library,cli,$(CLI_SOURCES))
$(call program,udnnmem,shim/cli/main.cpp,cli $(CLI_LIBRARIES),-l:libzstd.a -ldl -static-libstdc++ -static-libgcc $(SHIPPED))
DEFAULT += $(B)/udnnmem
