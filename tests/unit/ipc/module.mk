$(call unit_test,ipc,$(wildcard tests/unit/ipc/*.cpp),ipc host)
