//! Orders a graph and runs it.
//!
//! Planning walks back from the wanted arrays and places a node when all its users are placed: first come first
//! placed while few nodes wait, last come first placed beyond [`MAX_WIDTH`], so that a wide graph does not keep all
//! its branches alive at once. The reverse of that order runs. Each run of nodes on one stream is a [`Tape`].
//!
//! Running a node takes its operation, and with it the inputs, out of the node: an input without another holder is
//! freed, or written to, right there.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use crate::array::{Array, Operation};
use crate::observer::{Observer, Watch};
use crate::stream::{Event, Stream};
use crate::{ArrayError, Device, backend};

/// Waiting nodes beyond which planning goes into depth.
const MAX_WIDTH: usize = 20;

/// Plans exclude one another: a node must be claimed by one of them only.
static PLANNER: Mutex<Planner> = Mutex::new(Planner::new());

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
        let outputs = backend::run(device, self.operation, node)?;
        if let Some((watch, observer)) = watch {
            watch.stop(observer);
        }
        if !outputs.further.is_empty() {
            *node.extras() = outputs.further.into_iter().map(Some).collect();
        }
        node.set_data(outputs.first);
        Ok(())
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// The tapes that compute the arrays, in the order in which they have to be given to their streams.
pub(crate) fn plan(wanted: &[&Array]) -> Vec<(Stream, Tape)> {
    if wanted.iter().all(|array| array.is_evaluated()) {
        return Vec::new();
    }
    let mut planner = PLANNER.lock().unwrap_or_else(PoisonError::into_inner);
    planner.claim(wanted);
    planner.order();
    cut_into_tapes(planner.take_steps())
}

/// What a plan works with; the next one uses the memory again.
struct Planner {
    steps: Vec<Option<Step>>,
    /// Users of each step that are not placed yet.
    users: Vec<usize>,
    pending: Vec<Array>,
    waiting: VecDeque<usize>,
    /// Places in reverse order of execution.
    order: Vec<usize>,
}

impl Planner {
    const fn new() -> Self {
        Self {
            steps: Vec::new(),
            users: Vec::new(),
            pending: Vec::new(),
            waiting: VecDeque::new(),
            order: Vec::new(),
        }
    }

    /// Takes the operations of all nodes that still have to run.
    fn claim(&mut self, wanted: &[&Array]) {
        self.steps.clear();
        self.pending.clear();
        self.pending.extend(wanted.iter().map(|&array| array.clone()));
        while let Some(array) = self.pending.pop() {
            // Without an operation it has run, or another plan has claimed it, or this one has.
            let Some(operation) = array.0.operation().take() else { continue };
            self.pending.extend(operation.inputs.iter().filter(|input| !input.is_evaluated()).cloned());
            array.0.set_place(self.steps.len());
            self.steps.push(Some(Step { array, operation }));
        }
    }

    /// Finds an order in which every step comes after those that it uses.
    fn order(&mut self) {
        let Self { steps, users, waiting, order, .. } = self;
        users.clear();
        users.resize(steps.len(), 0);
        steps.iter().flat_map(|step| used(steps, step.as_ref())).for_each(|used| users[used] += 1);
        waiting.clear();
        waiting.extend((0..steps.len()).filter(|&place| users[place] == 0));
        order.clear();
        while let Some(place) =
            if waiting.len() > MAX_WIDTH { waiting.pop_back() } else { waiting.pop_front() }
        {
            order.push(place);
            for used in used(steps, steps[place].as_ref()) {
                users[used] -= 1;
                if users[used] == 0 {
                    waiting.push_back(used);
                }
            }
        }
    }

    /// The steps in order of execution.
    fn take_steps(&mut self) -> impl ExactSizeIterator<Item = Option<Step>> {
        self.order.iter().rev().map(|&place| self.steps[place].take())
    }
}

/// The places of the inputs of a step that are steps themselves.
fn used<'a>(steps: &'a [Option<Step>], step: Option<&'a Step>) -> impl Iterator<Item = usize> {
    let inputs = step.into_iter().flat_map(|step| &step.operation.inputs);
    inputs.filter_map(|input| {
        // A place that an earlier plan gave belongs to another node by now.
        let place = input.0.place();
        let claimed = steps.get(place)?.as_ref()?;
        Arc::ptr_eq(&claimed.array.0, &input.0).then_some(place)
    })
}

/// Each change of stream begins a new tape. A tape waits for the inputs that other tapes compute; those stand
/// earlier in the list or were submitted before, so that waiting always ends.
fn cut_into_tapes(mut steps: impl ExactSizeIterator<Item = Option<Step>>) -> Vec<(Stream, Tape)> {
    let mut tapes: Vec<(Stream, Tape)> = Vec::new();
    // Most graphs are one tape.
    while let (count, Some(step)) = (steps.len(), steps.next()) {
        let Some(step) = step else { continue };
        let stream = step.array.stream().clone();
        if tapes.last().is_none_or(|(last, _)| *last != stream) {
            tapes.push((
                stream,
                Tape { waits: Vec::new(), steps: VecDeque::with_capacity(count), done: Event::default() },
            ));
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
