$(call library,frameworks,$(wildcard shim/frameworks/*.cpp))
# Beside the library, as it is installed: shim/frameworks/frameworks.cpp looks for it there.
SITE := $(B)/udnnmem-site/sitecustomize.py
$(SITE): shim/frameworks/sitecustomize.py
	@mkdir -p $(@D)
	@cp $< $@
DEFAULT += $(SITE)
