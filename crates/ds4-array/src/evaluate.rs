//! Orders a graph and runs it.
//!
//! Planning walks back from the wanted arrays and places a node when all its users are placed: first come first
//! placed while few nodes wait, last come first placed beyond [`MAX_WIDTH`], so that a wide graph does not keep all
//! its branches alive at once. The reverse of that order runs. Each run of nodes on one stream is a [`Tape`].
//!
//! Running a node takes its operation, and with it the inputs, out of the node: an input without another holder is
//! freed, or written to, right there.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use crate::array::{Array, Node, Operation};
use crate::observer::{Observer, Watch};
use crate::stream::{Event, Stream};
use crate::{ArrayError, Device, backend};

/// Waiting nodes beyond which planning goes into depth.
const MAX_WIDTH: usize = 20;

/// Plans exclude one another: a node must be claimed by one of them only.
static PLANNING: Mutex<()> = Mutex::new(());

/// Nodes to run one after the other on one stream.
pub(crate) struct Tape {
    waits: Vec<Event>,
    steps: VecDeque<Step>,
    done: Event,
}

struct Step {
    array: Array,
    operation: Operation,
}

impl Tape {
    /// Completion of this tape.
    pub(crate) fn done(&self) -> &Event {
        &self.done
    }

    /// Runs the steps and sets the event. After an error the other steps are dropped and their arrays stay without
    /// a value.
    pub(crate) fn run(mut self, device: &Device) {
        let result = self.run_steps(device);
        self.done.set(result);
    }

    fn run_steps(&mut self, device: &Device) -> Result<(), ArrayError> {
        for event in &self.waits {
            event.wait()?;
        }
        let observer = device.observer();
        while let Some(step) = self.steps.pop_front() {
            catch_unwind(AssertUnwindSafe(|| step.run(device, observer.as_deref())))
                .unwrap_or_else(|panic| Err(ArrayError::Panicked { message: panic_message(&*panic) }))?;
        }
        Ok(())
    }
}

impl Drop for Tape {
    /// A tape that never ran must not leave anybody waiting.
    fn drop(&mut self) {
        if !self.done.is_done() {
            self.done.set(Err(ArrayError::NotComputed));
        }
    }
}

impl Step {
    fn run(self, device: &Device, observer: Option<&dyn Observer>) -> Result<(), ArrayError> {
        let node = &self.array.0;
        let watch = observer.map(|observer| (Watch::start(&self.operation, node), observer));
        let mut outputs = backend::run(device, self.operation, node)?.into_iter();
        if let Some((watch, observer)) = watch {
            watch.stop(observer);
        }
        if let Some(first) = outputs.next() {
            *node.extras() = outputs.map(Some).collect();
            node.set_data(first);
        }
        Ok(())
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

struct Entry {
    step: Step,
    users: usize,
}

fn key(array: &Array) -> *const Node {
    Arc::as_ptr(&array.0)
}

/// The tapes that compute the arrays, in the order in which they have to be given to their streams.
pub(crate) fn plan(wanted: &[&Array]) -> Vec<(Stream, Tape)> {
    if wanted.iter().all(|array| array.is_evaluated()) {
        return Vec::new();
    }
    let _planning = PLANNING.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut entries, places) = claim(wanted);
    let order = order(&mut entries, &places);
    let mut entries: Vec<Option<Entry>> = entries.into_iter().map(Some).collect();
    let steps = order.into_iter().rev().filter_map(|place| entries[place].take()).map(|entry| entry.step);
    cut_into_tapes(steps)
}

/// Takes the operations of all nodes that still have to run.
fn claim(wanted: &[&Array]) -> (Vec<Entry>, HashMap<*const Node, usize>) {
    let mut entries: Vec<Entry> = Vec::new();
    let mut places = HashMap::new();
    let mut pending: Vec<Array> = wanted.iter().map(|&array| array.clone()).collect();
    while let Some(array) = pending.pop() {
        // Without an operation it has run, or another plan has claimed it, or this one has.
        let Some(operation) = array.0.operation().take() else { continue };
        pending.extend(operation.inputs.iter().filter(|input| !input.is_evaluated()).cloned());
        places.insert(key(&array), entries.len());
        entries.push(Entry { step: Step { array, operation }, users: 0 });
    }
    for place in 0..entries.len() {
        for input in 0..entries[place].step.operation.inputs.len() {
            if let Some(&used) = places.get(&key(&entries[place].step.operation.inputs[input])) {
                entries[used].users += 1;
            }
        }
    }
    (entries, places)
}

/// Places in reverse order of execution.
fn order(entries: &mut [Entry], places: &HashMap<*const Node, usize>) -> Vec<usize> {
    let mut order = Vec::with_capacity(entries.len());
    let mut waiting: VecDeque<usize> =
        (0..entries.len()).filter(|&place| entries[place].users == 0).collect();
    while let Some(place) = if waiting.len() > MAX_WIDTH { waiting.pop_back() } else { waiting.pop_front() } {
        order.push(place);
        for input in 0..entries[place].step.operation.inputs.len() {
            let Some(&used) = places.get(&key(&entries[place].step.operation.inputs[input])) else {
                continue;
            };
            entries[used].users -= 1;
            if entries[used].users == 0 {
                waiting.push_back(used);
            }
        }
    }
    order
}

/// Each change of stream begins a new tape. A tape waits for the inputs that other tapes compute; those stand
/// earlier in the list or were submitted before, so that waiting always ends.
fn cut_into_tapes(steps: impl Iterator<Item = Step>) -> Vec<(Stream, Tape)> {
    let mut tapes: Vec<(Stream, Tape)> = Vec::new();
    for step in steps {
        let stream = step.array.stream().clone();
        if tapes.last().is_none_or(|(last, _)| *last != stream) {
            tapes.push((stream, Tape { waits: Vec::new(), steps: VecDeque::new(), done: Event::default() }));
        }
        let Some((_, tape)) = tapes.last_mut() else { continue };
        for input in step.operation.inputs.iter().filter(|input| !input.is_evaluated()) {
            if let Some(event) = input.0.scheduled().get()
                && *event != tape.done
                && !tape.waits.contains(event)
            {
                tape.waits.push(event.clone());
            }
        }
        let _ = step.array.0.scheduled().set(tape.done.clone());
        tape.steps.push_back(step);
    }
    tapes
}
