// Brings such a library along, found beside it.
int data_is_mine(void);
__attribute__((visibility("default"))) int data_beside_is_mine(void) { return data_is_mine(); }
