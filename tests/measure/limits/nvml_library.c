/* libnvidia-ml.so.1 as far as limits go: GPUs whose limits are kept in a file, a line a GPU: power in mW, highest clock. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { int place; } Device;
static Device devices[8];
static int count(void) { const char *text = getenv("LIMITS_GPUS"); return text ? atoi(text) : 2; }
static void load(unsigned *power, unsigned *clock) {
    FILE *file = fopen(getenv("LIMITS_STATE"), "r");
    for (int place = 0; place < 8; place++) { power[place] = 700000; clock[place] = 0; }
    for (int place = 0; file && place < count(); place++)
        if (fscanf(file, "%u %u", &power[place], &clock[place]) != 2) break;
    if (file) fclose(file);
}
static int save(unsigned *power, unsigned *clock) {
    /* Renamed into place: a test or another process reads the state at any moment, and must never find half of it. */
    char partial[4096];
    snprintf(partial, sizeof partial, "%s.%d", getenv("LIMITS_STATE"), (int)getpid());
    FILE *file = fopen(partial, "w");
    for (int place = 0; place < count(); place++) fprintf(file, "%u %u\n", power[place], clock[place]);
    return fclose(file) || rename(partial, getenv("LIMITS_STATE"));
}
static int may(void) { return getenv("LIMITS_DENIED") ? 4 : 0; }
int nvmlInitWithFlags(unsigned flags) { (void)flags; return 0; }
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return code == 4 ? "Insufficient Permissions" : "Error"; }
int nvmlDeviceGetCount_v2(unsigned *number) { *number = (unsigned)count(); return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned place, Device **device) {
    devices[place].place = (int)place; *device = &devices[place]; return 0;
}
int nvmlDeviceGetUUID(Device *device, char *text, unsigned length) {
    snprintf(text, length, "GPU-%d", device->place); return 0;
}
int nvmlDeviceGetPowerManagementLimitConstraints(Device *device, unsigned *least, unsigned *most) {
    (void)device; *least = 200000; *most = 700000; return 0;
}
int nvmlDeviceGetPowerManagementLimit(Device *device, unsigned *limit) {
    unsigned power[8], clock[8]; load(power, clock); *limit = power[device->place]; return 0;
}
int nvmlDeviceSetPowerManagementLimit(Device *device, unsigned limit) {
    unsigned power[8], clock[8]; load(power, clock);
    if (may()) return may();
    power[device->place] = limit; return save(power, clock);
}
int nvmlDeviceSetGpuLockedClocks(Device *device, unsigned least, unsigned most) {
    unsigned power[8], clock[8]; (void)least; load(power, clock);
    if (may()) return may();
    clock[device->place] = most; return save(power, clock);
}
int nvmlDeviceResetGpuLockedClocks(Device *device) {
    unsigned power[8], clock[8]; load(power, clock);
    clock[device->place] = 0; return save(power, clock);
}
