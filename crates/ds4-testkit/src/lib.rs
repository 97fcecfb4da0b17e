//! For tests only: tolerances, tiny models, a scripted engine, a server process
