//! A small pool of persistent threads that share out the tasks of one kernel call.
//!
//! Each thread has a share of the tasks, which it claims one by one; who has finished takes from the shares of others. So a
//! thread that is held up by another process delays only the task it holds, and a thread that wakes up late finds nothing left
//! and is not waited for. A share lies in cache lines of its own: they go from core to core once a call and not with every task,
//! which would cost a small call more than its work.
//!
//! Threads wait some dozens of microseconds for the next call by spinning, since a forward pass makes calls back to back, and then
//! sleep, so an idle server uses no processor time. What remains is a thread that loses its processor while it holds a task:
//! nobody else can finish it. Where that happens another process wants the processor, and the caller works alone for a while
//! instead of waiting again and again. There are no queues and no futures here: one call at a time, finished when `run`
//! returns.

use std::any::Any;
use std::cell::UnsafeCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a thread looks for work, or for the end of the others' work, before it sleeps: about what sleeping and being
/// woken costs.
const SPIN: Duration = Duration::from_micros(50);

/// A wait for other threads that is longer than this, besides some tasks' time, means that one lost its processor.
const STALL: Duration = Duration::from_millis(1);

/// How long the caller works alone after a stall: first, and at most after stalls in a row. With the thread held up for as
/// long as it ran before, being helped in between gains what the stall costs.
const ALONE: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(80)];

/// What a share consists of: `body(task)` for the tasks that end before `end`.
#[derive(Clone, Copy)]
struct Job {
    /// Lives as long as the call to `run` that made it. The lifetime is erased because the threads outlive the call.
    body: *const (dyn Fn(usize) + Sync),
    end: usize,
}

/// A thread's part of a call. Alone in its cache lines, of which processors fetch two at a time.
#[repr(align(128))]
struct Share {
    /// Tasks nobody has claimed. A claim that comes late, from a thread that looked at an earlier call, is one of this call: it
    /// reads the job after its claim.
    left: AtomicUsize,
    /// Written by `run` while no task of the share is claimed or running; read by whoever has claimed a task.
    job: UnsafeCell<Option<Job>>,
}

/// What the threads have finished, and whether the caller sleeps until they have more.
#[repr(align(128))]
struct Finished {
    /// Tasks of the others than the caller.
    tasks: AtomicUsize,
    caller_sleeps: AtomicBool,
}

struct Shared {
    /// The caller's share, then those of the workers. Where a thread could not be started, others do its share.
    shares: Box<[Share]>,
    finished: Finished,
    panicked: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// How many of the sleepers may get up.
    wake_ups: Mutex<usize>,
    work_came: Condvar,
    work_ended: Condvar,
    /// Sleepers without a wake-up. Changed under the lock of `wake_ups`, read without.
    sleepers: AtomicUsize,
    closing: AtomicBool,
}

// SAFETY: `job` is the only part that is not `Sync` and `Send` by itself; see its remark, and the ordering in `fill` and
// `claim`, `finish` and `wait_until_finished`.
unsafe impl Sync for Shared {}
// SAFETY: as above; the pointer in `job` is only followed while the call that owns its target waits.
unsafe impl Send for Shared {}

/// Persistent threads that run the tasks of one call at a time together with the caller.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Held by the call in progress.
    running: Mutex<Contention>,
}

/// What calls have met of other processes.
struct Contention {
    /// When the threads may be asked again.
    alone_until: Option<Instant>,
    /// For how long they are left alone after the next stall.
    pause: Duration,
}

impl Contention {
    fn is_alone(&self) -> bool {
        self.alone_until.is_some_and(|until| Instant::now() < until)
    }

    fn after(&mut self, call: &Timing) {
        if call.waited > STALL + 4 * call.task {
            self.alone_until = Some(Instant::now() + self.pause);
            self.pause = ALONE[1].min(2 * self.pause);
        } else if self.alone_until.is_some_and(|until| until.elapsed() > self.pause) {
            *self = Self::default();
        }
    }
}

impl Default for Contention {
    fn default() -> Self {
        Self { alone_until: None, pause: ALONE[0] }
    }
}

/// How a call went for its caller. Zero where it waited for next to nothing.
#[derive(Default)]
struct Timing {
    /// Average of the tasks it ran itself.
    task: Duration,
    /// From the end of those to the end of the others'.
    waited: Duration,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads()).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// A pool of `threads` threads (at least one), the one that calls `run` included.
    ///
    /// Where the system refuses to start a thread, the pool has fewer.
    pub fn new(threads: usize) -> Self {
        Self::starting(threads, |_| ())
    }

    /// The same, with threads that first call `start` with their number, from 1 on.
    pub fn starting(threads: usize, start: impl Fn(usize) + Clone + Send + 'static) -> Self {
        let share = |_| Share { left: AtomicUsize::new(0), job: UnsafeCell::new(None) };
        let shared = Arc::new(Shared {
            shares: (0..threads.max(1)).map(share).collect(),
            finished: Finished { tasks: AtomicUsize::new(0), caller_sleeps: AtomicBool::new(false) },
            panicked: AtomicBool::new(false),
            panic: Mutex::new(None),
            wake_ups: Mutex::new(0),
            work_came: Condvar::new(),
            work_ended: Condvar::new(),
            sleepers: AtomicUsize::new(0),
            closing: AtomicBool::new(false),
        });
        let workers = (1..threads)
            .map_while(|i| {
                let (shared, start) = (Arc::clone(&shared), start.clone());
                let work = move || {
                    start(i);
                    shared.work_until_closed(i);
                };
                std::thread::Builder::new().name(format!("kernel-{i}")).spawn(work).ok()
            })
            .collect();
        Self { shared, workers, running: Mutex::default() }
    }

    /// Threads that may work on one call, the calling one included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `body(i)` for every `i` below `tasks`, in no fixed order, and returns when all are finished.
    ///
    /// A call that comes while another has the threads, from within its tasks or from elsewhere, runs its tasks on the calling
    /// thread.
    ///
    /// # Panics
    /// If a task panics, tasks not yet begun are skipped and the first panic continues in the caller.
    pub fn run(&self, tasks: usize, body: &(dyn Fn(usize) + Sync)) {
        let inline = || (0..tasks).for_each(body);
        if tasks <= 1 || self.workers.is_empty() {
            return inline();
        }
        let mut call = match self.running.try_lock() {
            Ok(call) => call,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return inline(),
        };
        if call.is_alone() {
            return inline();
        }
        let (panic, timing) = self.shared.run(tasks, body);
        call.after(&timing);
        drop(call);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::SeqCst);
        drop(lock(&self.shared.wake_ups));
        self.shared.work_came.notify_all();
        for worker in self.workers.drain(..) {
            // A worker catches the panics of its tasks, so there is nothing to learn from its result.
            let _ = worker.join();
        }
    }
}

impl Share {
    /// Gives the share its tasks, of which there may be none.
    fn fill(&self, tasks: usize, job: Job) {
        // SAFETY: the last call waited until all its tasks were done, and none is left to be claimed, so nobody reads.
        unsafe { *self.job.get() = Some(job) };
        // Publishes the job.
        self.left.store(tasks, Ordering::Release);
    }

    fn has_tasks(&self) -> bool {
        self.left.load(Ordering::Acquire) > 0
    }

    fn claim(&self) -> Option<(Job, usize)> {
        let one_less = |left: usize| left.checked_sub(1);
        let left = self.left.fetch_update(Ordering::Acquire, Ordering::Acquire, one_less).ok()?;
        // SAFETY: a task of this call is claimed and not done, so `run` does not write `job` now, and its last write happened
        // before the number that was just read.
        let job = unsafe { *self.job.get() }?;
        Some((job, job.end - left))
    }
}

impl Shared {
    /// The whole of one call, on the calling thread. Returns what a task panicked with, and how long things took.
    fn run(&self, tasks: usize, body: &(dyn Fn(usize) + Sync)) -> (Option<Box<dyn Any + Send>>, Timing) {
        // SAFETY: only the lifetime changes. The pointer is followed by claimed tasks only, and this function returns
        // after all of them are done.
        let body: *const (dyn Fn(usize) + Sync) = unsafe {
            std::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), *const (dyn Fn(usize) + Sync + 'static)>(
                body,
            )
        };
        self.finished.tasks.store(0, Ordering::Relaxed);
        let (each, more) = (tasks / self.shares.len(), tasks % self.shares.len());
        let mut end = 0;
        for (i, share) in self.shares.iter().enumerate() {
            let count = each + usize::from(i < more);
            end += count;
            share.fill(count, Job { body, end });
        }
        let start = Instant::now();
        // A worker that falls asleep at this very moment may not be seen. Then the others do its share.
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            self.wake(tasks - 1);
        }
        let mut own = self.run_share(0);
        own += (1..self.shares.len()).map(|other| self.run_share(other)).sum::<usize>();
        let timing = self.wait_until_finished(tasks - own, own, start);
        (self.take_panic(), timing)
    }

    /// What a task of the call that has just ended panicked with. Writes nothing where none has: the workers read it next.
    fn take_panic(&self) -> Option<Box<dyn Any + Send>> {
        if !self.panicked.load(Ordering::Relaxed) {
            return None;
        }
        self.panicked.store(false, Ordering::Relaxed);
        lock(&self.panic).take()
    }

    /// Gives a wake-up to as many as `count` sleepers, once each: a thread that takes long to get up costs no more calls.
    fn wake(&self, count: usize) {
        let mut wake_ups = lock(&self.wake_ups);
        let count = count.min(self.sleepers.load(Ordering::Relaxed));
        self.sleepers.fetch_sub(count, Ordering::Relaxed);
        *wake_ups += count;
        drop(wake_ups);
        (0..count).for_each(|_| self.work_came.notify_one());
    }

    /// Runs what is left of a share. Returns how many tasks it was.
    fn run_share(&self, share: usize) -> usize {
        let mut count = 0;
        while let Some((job, task)) = self.shares[share].claim() {
            count += 1;
            if self.panicked.load(Ordering::Relaxed) {
                continue;
            }
            // SAFETY: the task is claimed and not done, so the call that owns `body` has not returned.
            let body = unsafe { &*job.body };
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| body(task))) {
                let mut first = lock(&self.panic);
                match &*first {
                    None => *first = Some(payload),
                    // To drop it may panic again, here, where nobody catches it.
                    Some(_) => std::mem::forget(payload),
                }
                drop(first);
                self.panicked.store(true, Ordering::Relaxed);
            }
        }
        count
    }

    /// A worker has finished this many tasks. The call may return after the last of them.
    fn finish(&self, tasks: usize) {
        if tasks == 0 {
            return;
        }
        self.finished.tasks.fetch_add(tasks, Ordering::SeqCst);
        if self.finished.caller_sleeps.load(Ordering::SeqCst) {
            drop(lock(&self.wake_ups));
            self.work_ended.notify_all();
        }
    }

    /// Waits for the workers' `tasks`, after `own` tasks of the caller since `start`.
    fn wait_until_finished(&self, tasks: usize, own: usize, start: Instant) -> Timing {
        let is_finished = || self.finished.tasks.load(Ordering::SeqCst) == tasks;
        if poll(is_finished) {
            return Timing::default();
        }
        let end = Instant::now();
        if !spin_until(is_finished) {
            let mut guard = lock(&self.wake_ups);
            self.finished.caller_sleeps.store(true, Ordering::SeqCst);
            while !is_finished() {
                guard = self.work_ended.wait(guard).unwrap_or_else(PoisonError::into_inner);
            }
            self.finished.caller_sleeps.store(false, Ordering::SeqCst);
        }
        let own = u32::try_from(own.max(1)).unwrap_or(u32::MAX);
        Timing { task: (end - start) / own, waited: end.elapsed() }
    }

    fn work_until_closed(&self, own: usize) {
        let is_closing = || self.closing.load(Ordering::SeqCst);
        let shares = self.shares.len();
        while !is_closing() {
            let mut ran = 0;
            for share in (own..shares).chain(0..own) {
                let count = self.run_share(share);
                self.finish(count);
                ran += count;
            }
            if ran > 0 || spin_until(|| self.shares[own].has_tasks() || is_closing()) {
                continue;
            }
            let mut wake_ups = lock(&self.wake_ups);
            self.sleepers.fetch_add(1, Ordering::SeqCst);
            // Who fills the share from here on sees a sleeper.
            if self.shares[own].has_tasks() {
                self.sleepers.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            while *wake_ups == 0 && !is_closing() {
                wake_ups = self.work_came.wait(wake_ups).unwrap_or_else(PoisonError::into_inner);
            }
            *wake_ups = wake_ups.saturating_sub(1);
        }
    }
}

/// Looks at `condition` for about [`SPIN`]; whether it came true.
fn spin_until(condition: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while !poll(&condition) {
        if start.elapsed() > SPIN {
            return false;
        }
    }
    true
}

/// Looks at `condition` a few times; whether it came true.
fn poll(condition: impl Fn() -> bool) -> bool {
    (0..32).any(|_| {
        let came_true = condition();
        if !came_true {
            std::hint::spin_loop();
        }
        came_true
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `tasks` tasks and checks that each ran once.
    fn check(pool: &Pool, tasks: usize) {
        let counts: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
        pool.run(tasks, &|i| {
            counts[i].fetch_add(1, Ordering::Relaxed);
        });
        assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 1));
    }

    #[test]
    fn each_task_runs_once_whatever_the_number_of_threads() {
        for threads in [0, 1, 2, 3, 8] {
            let pool = Pool::new(threads);
            assert_eq!(pool.threads(), threads.max(1));
            for tasks in [0, 1, 2, 3, 7, 100] {
                check(&pool, tasks);
            }
        }
    }

    #[test]
    fn a_stall_leaves_the_caller_alone_and_a_long_task_does_not() {
        let ms = Duration::from_millis;
        let mut contention = Contention::default();
        contention.after(&Timing { task: ms(5), waited: ms(12) });
        assert!(!contention.is_alone(), "waiting for a task as long as one's own is no stall");
        contention.after(&Timing { task: ms(0), waited: ms(3) });
        assert!(contention.is_alone());
        assert_eq!(contention.pause, 2 * ALONE[0], "the next pause is longer");
        for _ in 0..10 {
            contention.after(&Timing { task: ms(0), waited: ms(3) });
        }
        assert_eq!(contention.pause, ALONE[1]);
    }

    #[test]
    fn many_tiny_calls() {
        let pool = Pool::new(3);
        for i in 0..20_000 {
            check(&pool, i % 5);
        }
    }

    #[test]
    fn threads_wake_up_from_sleep() {
        let pool = Pool::new(2);
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(2));
            check(&pool, 4);
        }
    }

    #[test]
    fn a_caller_sleeps_while_another_thread_works_on() {
        let pool = Pool::new(2);
        let slow = AtomicUsize::new(0);
        pool.run(2, &|_| {
            std::thread::sleep(Duration::from_millis(3 * (1 + slow.fetch_add(1, Ordering::Relaxed) as u64)));
        });
        assert_eq!(slow.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_goes_on() {
        let pool = Pool::new(3);
        for round in 0..50 {
            let result = catch_unwind(AssertUnwindSafe(|| {
                pool.run(10, &|i| assert!(i != round % 10, "task {i} failed"));
            }));
            let message = result.expect_err("the panic was lost");
            assert_eq!(message.downcast_ref::<String>(), Some(&format!("task {} failed", round % 10)));
            check(&pool, 10);
        }
    }

    /// A panic whose payload panics again when it is dropped.
    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }

    #[test]
    fn a_payload_that_nobody_gets_is_not_dropped() {
        let pool = Pool::new(2);
        let both_panic = AtomicUsize::new(0);
        let result = catch_unwind(AssertUnwindSafe(|| {
            pool.run(2, &|_| {
                both_panic.fetch_add(1, Ordering::SeqCst);
                // Nobody may come to take the other one.
                let started = Instant::now();
                while both_panic.load(Ordering::SeqCst) < 2 && started.elapsed() < Duration::from_secs(1) {
                    std::thread::yield_now();
                }
                std::panic::panic_any(Bomb);
            });
        }));
        assert!(result.is_err_and(|payload| {
            let is_bomb = payload.is::<Bomb>();
            std::mem::forget(payload);
            is_bomb
        }));
        check(&pool, 10);
    }

    #[test]
    fn a_call_within_a_task_runs_inline() {
        let pool = Pool::new(2);
        let total = AtomicUsize::new(0);
        pool.run(8, &|_| {
            let here = std::thread::current().id();
            pool.run(8, &|_| {
                assert_eq!(std::thread::current().id(), here);
                total.fetch_add(1, Ordering::Relaxed);
            });
        });
        assert_eq!(total.load(Ordering::Relaxed), 64);
    }

    #[test]
    fn calls_from_several_threads_do_not_mix() {
        let pool = Pool::new(3);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..500).for_each(|i| check(&pool, i % 9)));
            }
        });
    }
}
