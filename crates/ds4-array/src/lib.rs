//! Lazy arrays: operations build a graph, evaluation orders and runs it on a backend
