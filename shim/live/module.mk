$(call library,live_publisher,shim/live/publisher.cpp)
$(call library,live_reader,shim/live/reader.cpp)
