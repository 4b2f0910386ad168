// What the emulated drivers of CUDA and HIP share: memory, work in the order of its submission, and the way to Python.
//
// Device memory is memory of this process. Python learns what happened to it from a log, which it empties before it
// executes a kernel, so that nothing but a launch and the lookup of a kernel calls Python: the runtime may hold
// Python's lock, or wait in one thread for another. While work is deferred (a program is being loaded, and its
// initialisers run under Python's lock), launches wait in a queue with the copies that depend on them; Python runs it
// afterwards. Where the host wants to read what they compute, the program cannot be loaded.
#ifndef QMLIR_EMULATION_DEVICE_H
#define QMLIR_EMULATION_DEVICE_H

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))
#define MAX_DEVICES 64
#define MAX_PARAMETERS 256

// ---- what Python is told, and asked

enum { EVENT_ADDED, EVENT_ADDED_VISIBLE, EVENT_REMOVED, EVENT_WRITTEN, EVENT_COPIED };
typedef struct Event {
  uint64_t kind, address, size, source;
} Event;

typedef struct Launch {
  const void* image;
  uint64_t image_size;
  const char* name;
  uint32_t grid[3], block[3];
  uint32_t shared_bytes, arguments_size;
  const void* arguments;
} Launch;

typedef void (*LaunchCallback)(const Launch*);
// Offsets and sizes of a kernel's parameters; returns how many there are, or -1 where there is no such kernel.
typedef int (*LayoutCallback)(const void* image, uint64_t size, const char* name, uint32_t* offsets, uint32_t* sizes);

static LaunchCallback on_launch;
static LayoutCallback on_layout;

// ---- state

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

typedef struct Allocation {
  struct Allocation* next;
  char* start;
  size_t size;
  void* base;   // what to free, NULL for memory of the host's that was registered
  int visible;  // the host may access it directly
  void* pool;   // that it was taken from, NULL of none
} Allocation;
static Allocation* allocations;
static size_t stray_frees;  // of what is not allocated, which a device says no word about or corrupts

static Event* events;
static size_t event_count, event_capacity;

typedef struct Attribute {
  int id, value;
} Attribute;
typedef struct Device {
  char name[64];
  Attribute attributes[64];
  int count;
} Device;
static Device devices[MAX_DEVICES];
static int device_count, active_device;

typedef struct Image {
  void* data;
  uint64_t size;
  int uses;  // the module, and launches in the queue
} Image;

typedef struct Kernel {
  Image* image;
  char* name;
  int count;
  uint32_t offsets[MAX_PARAMETERS], sizes[MAX_PARAMETERS], total;
  struct Kernel* next;
} Kernel;

typedef struct Module {
  Image* image;
  Kernel* kernels;
} Module;

enum { WORK_LAUNCH, WORK_COPY, WORK_FILL, WORK_FREE };
typedef struct Work {
  struct Work* next;
  int kind;
  char* target;
  const char* source;
  void* owned;  // freed with the work: arguments of a launch, or a copy of what the host hands over
  size_t size;
  uint32_t value, width;
  Launch launch;
  Image* image;
} Work;
static Work *queue, **queue_end = &queue;
static int deferring, early_reads;

static void log_event(uint64_t kind, const void* address, uint64_t size, const void* source) {
  if (event_count == event_capacity) {
    event_capacity = event_capacity ? 2 * event_capacity : 256;
    events = realloc(events, event_capacity * sizeof *events);
  }
  events[event_count++] = (Event){kind, (uint64_t)(uintptr_t)address, size, (uint64_t)(uintptr_t)source};
}

// ---- memory

static Allocation* allocation_of(const void* address) {
  for (Allocation* a = allocations; a; a = a->next)
    if ((const char*)address >= a->start && (const char*)address < a->start + a->size) return a;
  return NULL;
}

static void add_allocation(void* start, size_t size, void* base, int visible) {
  Allocation* a = malloc(sizeof *a);
  *a = (Allocation){allocations, start, size, base, visible, NULL};
  allocations = a;
  log_event(visible ? EVENT_ADDED_VISIBLE : EVENT_ADDED, start, size, NULL);
}

// Unaddressed bytes around each allocation: what leaves it never ends in the next one.
#define GUARD 256

static void* device_allocate(size_t size, int visible) {
  void* base = NULL;
  size_t room = (size + GUARD - 1) / GUARD * GUARD;
  if (posix_memalign(&base, GUARD, room + 2 * GUARD)) return NULL;
  memset(base, 0xA5, room + 2 * GUARD);
  pthread_mutex_lock(&lock);
  add_allocation((char*)base + GUARD, size, base, visible);
  pthread_mutex_unlock(&lock);
  return (char*)base + GUARD;
}

static void device_register(void* start, size_t size) {
  pthread_mutex_lock(&lock);
  add_allocation(start, size, NULL, 1);
  pthread_mutex_unlock(&lock);
}

static void release_allocation(void* start) {
  for (Allocation** at = &allocations; *at; at = &(*at)->next)
    if ((*at)->start == start) {
      Allocation* a = *at;
      *at = a->next;
      log_event(EVENT_REMOVED, start, a->size, NULL);
      free(a->base);
      free(a);
      return;
    }
  stray_frees++;
}

// ---- work

static void drop_image(Image* image) {
  if (--image->uses == 0) {
    free(image->data);
    free(image);
  }
}

static void drop_work(Work* w) {
  if (w->image) drop_image(w->image);
  free(w->owned);
  free(w);
}

// With the lock held, but for a launch.
static void perform(Work* w) {
  switch (w->kind) {
    case WORK_LAUNCH:
      if (on_launch) on_launch(&w->launch);
      break;
    case WORK_COPY:
      memmove(w->target, w->source, w->size);
      if (w->owned || !allocation_of(w->source))
        log_event(EVENT_WRITTEN, w->target, w->size, NULL);
      else
        log_event(EVENT_COPIED, w->target, w->size, w->source);
      break;
    case WORK_FILL:
      for (size_t i = 0; i + w->width <= w->size; i += w->width) memcpy(w->target + i, &w->value, w->width);
      log_event(EVENT_WRITTEN, w->target, w->size, NULL);
      break;
    case WORK_FREE:
      release_allocation(w->target);
      break;
  }
}

static int overlap(const char* a, size_t size, const char* b, size_t other) { return a < b + other && b < a + size; }

// Whether work in the queue may read or write these bytes. Kernels may do so wherever they have a pointer to.
static int in_queue(const char* start, size_t size) {
  Allocation* mine = allocation_of(start);
  for (Work* w = queue; w; w = w->next) {
    if (w->kind == WORK_LAUNCH) {
      for (size_t i = 0; i + 8 <= w->launch.arguments_size; i += 8) {
        void* pointer;
        memcpy(&pointer, (const char*)w->launch.arguments + i, 8);
        if (mine && allocation_of(pointer) == mine) return 1;
      }
    } else if (w->kind == WORK_FREE ? w->target == start : overlap(start, size, w->target, w->size)) {
      return 1;
    } else if (w->kind == WORK_COPY && overlap(start, size, w->source, w->size)) {
      return 1;
    }
  }
  return 0;
}

static int must_wait(const Work* w) {
  if (w->kind == WORK_LAUNCH) return 1;
  if (!queue) return 0;
  if (w->kind == WORK_FREE) {
    Allocation* a = allocation_of(w->target);
    return in_queue(w->target, a ? a->size : 1);
  }
  return in_queue(w->target, w->size) || (w->kind == WORK_COPY && in_queue(w->source, w->size));
}

// Takes the work over.
static void submit(Work* w) {
  pthread_mutex_lock(&lock);
  w->next = NULL;
  if (w->image) w->image->uses++;
  if (deferring && must_wait(w)) {
    Allocation* target = allocation_of(w->target);
    if (w->kind == WORK_COPY && (!target || target->visible)) early_reads++;  // the host will look at it now
    if (w->kind == WORK_COPY && !w->owned) {
      Allocation* a = allocation_of(w->source);
      if (!a || (a->visible && !in_queue(w->source, w->size))) {  // the host may change it meanwhile
        w->owned = malloc(w->size);
        memcpy(w->owned, w->source, w->size);
        w->source = w->owned;
      }
    }
    *queue_end = w;
    queue_end = &w->next;
    pthread_mutex_unlock(&lock);
    return;
  }
  if (w->kind == WORK_LAUNCH) {
    pthread_mutex_unlock(&lock);
    perform(w);
    pthread_mutex_lock(&lock);
  } else {
    perform(w);
  }
  drop_work(w);
  pthread_mutex_unlock(&lock);
}

static Work* new_work(int kind) {
  Work* w = calloc(1, sizeof *w);
  w->kind = kind;
  return w;
}

static Work* new_copy(void* target, const void* source, size_t size) {
  Work* w = new_work(WORK_COPY);
  w->target = target, w->source = source, w->size = size;
  return w;
}

static Work* new_fill(void* target, uint32_t value, uint32_t width, size_t size) {
  Work* w = new_work(WORK_FILL);
  w->target = target, w->value = value, w->width = width, w->size = size;
  return w;
}

static void device_free(void* start) {
  Work* w = new_work(WORK_FREE);
  w->target = start;
  submit(w);
}

// ---- programs

static Module* new_module(const void* data, uint64_t size) {
  Module* m = calloc(1, sizeof *m);
  m->image = calloc(1, sizeof *m->image);
  *m->image = (Image){malloc(size + 1), size, 1};
  memcpy(m->image->data, data, size);
  ((char*)m->image->data)[size] = 0;
  return m;
}

static void drop_module(Module* m) {
  pthread_mutex_lock(&lock);
  for (Kernel* k = m->kernels; k;) {
    Kernel* next = k->next;
    k->name = NULL;  // the name stays with launches in the queue: it is freed with the process
    free(k);
    k = next;
  }
  drop_image(m->image);
  free(m);
  pthread_mutex_unlock(&lock);
}

// NULL where the module has no such kernel.
static Kernel* find_kernel(Module* m, const char* name) {
  Kernel* k = calloc(1, sizeof *k);
  k->count = on_layout ? on_layout(m->image->data, m->image->size, name, k->offsets, k->sizes) : -1;
  if (k->count < 0) {
    free(k);
    return NULL;
  }
  for (int i = 0; i < k->count; i++)
    if (k->offsets[i] + k->sizes[i] > k->total) k->total = k->offsets[i] + k->sizes[i];
  k->image = m->image, k->name = strdup(name);
  k->next = m->kernels, m->kernels = k;
  return k;
}

static Work* new_launch(Kernel* k, const uint32_t grid[3], const uint32_t block[3], uint32_t shared, void** parameters) {
  Work* w = new_work(WORK_LAUNCH);
  w->owned = calloc(1, k->total + 1);
  for (int i = 0; i < k->count; i++) memcpy((char*)w->owned + k->offsets[i], parameters[i], k->sizes[i]);
  w->launch = (Launch){k->image->data, k->image->size, k->name, {grid[0], grid[1], grid[2]},
                       {block[0], block[1], block[2]}, shared, k->total, w->owned};
  w->image = k->image;
  return w;
}

// A graph is its work in the order in which it was added, which follows the dependencies.
typedef struct Graph {
  Work *first, **last;
  int uses;
} Graph;

static Graph* new_graph(void) {
  Graph* g = calloc(1, sizeof *g);
  g->last = &g->first, g->uses = 1;
  return g;
}

static void add_to_graph(Graph* g, Work* w) {
  if (w->kind == WORK_COPY && !allocation_of(w->source)) {
    w->owned = malloc(w->size);
    memcpy(w->owned, w->source, w->size);
    w->source = w->owned;
  }
  if (w->image) w->image->uses++;
  *g->last = w, g->last = &w->next;
}

static void drop_graph(Graph* g) {
  if (--g->uses) return;
  for (Work* w = g->first; w;) {
    Work* next = w->next;
    drop_work(w);
    w = next;
  }
  free(g);
}

static void launch_graph(Graph* g) {
  for (Work* each = g->first; each; each = each->next) {
    Work* w = new_work(each->kind);
    *w = *each;
    if (each->owned) {
      size_t size = each->kind == WORK_LAUNCH ? each->launch.arguments_size : each->size;
      w->owned = malloc(size + 1);
      memcpy(w->owned, each->owned, size);
      if (each->kind == WORK_LAUNCH) w->launch.arguments = w->owned;
      if (each->kind == WORK_COPY) w->source = w->owned;
    }
    submit(w);
  }
}

// ---- for Python

API void emulated_connect(LaunchCallback launch, LayoutCallback layout) { on_launch = launch, on_layout = layout; }

// Another device; returns its number, or -1 where there are too many.
API int emulated_add_device(const char* name, const int* ids, const int* values, int count) {
  if (device_count == MAX_DEVICES || count > 64) return -1;
  Device* d = &devices[device_count];
  snprintf(d->name, sizeof d->name, "%s", name);
  for (int i = 0; i < count; i++) d->attributes[i] = (Attribute){ids[i], values[i]};
  d->count = count;
  return device_count++;
}

// How often something was freed that was not allocated.
API size_t emulated_stray_frees(void) { return stray_frees; }

// Whose limits hold.
API void emulated_activate(int device) { active_device = device; }

// Returns how often the host read what had not been computed since work was deferred.
API int emulated_defer(int on) {
  pthread_mutex_lock(&lock);
  int reads = early_reads;
  deferring = on, early_reads = 0;
  pthread_mutex_unlock(&lock);
  return reads;
}

// Do what was deferred, in its order.
API void emulated_run_queue(void) {
  for (;;) {
    pthread_mutex_lock(&lock);
    Work* w = queue;
    if (w) {
      queue = w->next;
      if (!queue) queue_end = &queue;
      if (w->kind != WORK_LAUNCH) {
        perform(w);
        drop_work(w);
      }
    }
    pthread_mutex_unlock(&lock);
    if (!w) return;
    if (w->kind == WORK_LAUNCH) {
      perform(w);
      pthread_mutex_lock(&lock);
      drop_work(w);
      pthread_mutex_unlock(&lock);
    }
  }
}

// The oldest events, taken out of the log; returns how many.
API size_t emulated_take_events(Event* into, size_t most) {
  pthread_mutex_lock(&lock);
  size_t n = event_count < most ? event_count : most;
  memcpy(into, events, n * sizeof *events);
  memmove(events, events + n, (event_count - n) * sizeof *events);
  event_count -= n;
  pthread_mutex_unlock(&lock);
  return n;
}

static int attribute_of(int device, int id) {
  for (int i = 0; i < devices[device].count; i++)
    if (devices[device].attributes[i].id == id) return devices[device].attributes[i].value;
  return 0;
}

// A device's own number, so that no two look the same.
static void uuid_of(int device, unsigned char* uuid) {
  memset(uuid, 0, 16);
  memcpy(uuid, "qmlir", 5);
  uuid[15] = (unsigned char)device;
}

#endif
