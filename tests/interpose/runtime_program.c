// The first thing that any runtime-API program does; the real runtime looks the whole driver up for it.
int cudaGetDeviceCount(int*);
int main(void) {
    int count = 0;
    return cudaGetDeviceCount(&count) == 0 ? 0 : 3;
}
