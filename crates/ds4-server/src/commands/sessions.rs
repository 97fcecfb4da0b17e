//! `sessions`: what is kept of conversations on disk, and getting rid of it.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use ds4_session_store::{Prune, Removed, SessionInfo, Store, StoreError, WhenLocked};
use serde_json::{Value, json};

use super::sizes;
use crate::exit_code::Usage;
use crate::flags::{SessionsAction, SessionsFlags};
use crate::{output, saved_chats, session_store};

pub(super) fn run(flags: &SessionsFlags) -> anyhow::Result<()> {
    let folder = flags.folder()?;
    let text = match &flags.action {
        SessionsAction::List => list(&folder, flags.json)?,
        SessionsAction::Show { id } => show(&folder, id, flags.json)?,
        SessionsAction::Rm { id } => {
            let removed = match to_change(&folder)? {
                Some(store) => remove(&store, id)?,
                None => return Err(unknown(id, &folder)),
            };
            done(removed, &format!("{id} removed"), flags.json)
        }
        SessionsAction::Prune { older_than, all } => {
            let age = if *all { None } else { Some(*older_than) };
            let removed = match to_change(&folder)? {
                Some(store) => prune(&store, age)?,
                None => Removed::default(),
            };
            done(removed, &format!("{} states removed", removed.states), flags.json)
        }
    };
    output::stdout(&text)?;
    Ok(())
}

/// The store for reading. `None` if there is no such folder: nobody has kept anything yet, and looking makes none.
fn to_read(folder: &Path) -> anyhow::Result<Option<Store>> {
    if !folder.exists() {
        return Ok(None);
    }
    Ok(Some(session_store::open_to_manage(folder, WhenLocked::ReadOnly)?))
}

fn to_change(folder: &Path) -> anyhow::Result<Option<Store>> {
    if !folder.exists() {
        return Ok(None);
    }
    match session_store::open_to_manage(folder, WhenLocked::Refuse) {
        Ok(store) => Ok(Some(store)),
        Err(StoreError::InUse { .. }) => Err(Usage(format!(
            "a server or a chat that runs uses {}: end it first, or ask the server (DELETE /v1/sessions/ID)",
            folder.display()
        ))
        .into()),
        Err(error) => Err(error.into()),
    }
}

fn list(folder: &Path, json: bool) -> anyhow::Result<String> {
    let store = to_read(folder)?;
    let sessions = store.as_ref().map_or(Vec::new(), Store::sessions);
    if json {
        let all: Vec<Value> = sessions.iter().map(as_json).collect();
        return Ok(format!("{:#}\n", Value::from(all)));
    }
    if sessions.is_empty() {
        return Ok(format!("no sessions in {}\n", folder.display()));
    }
    let width = sessions.iter().map(|session| session.id.chars().count()).max().unwrap_or(0).max(7);
    let mut text = format!("{:width$}  {:>13}  {:>8}  {:>9}  TITLE\n", "SESSION", "USED", "TOKENS", "SIZE");
    for session in &sessions {
        text.push_str(
            format!(
                "{:width$}  {:>13}  {:>8}  {:>9}  {}",
                session.id,
                ago(session.used),
                session.tokens,
                sizes::bytes(session.exclusive_bytes),
                session.title.as_deref().unwrap_or_default(),
            )
            .trim_end(),
        );
        text.push('\n');
    }
    let used = store.map_or(0, |store| store.stats().bytes);
    text.push_str(&format!("{} in {}\n", sizes::bytes(used), folder.display()));
    Ok(text)
}

fn show(folder: &Path, id: &str, json: bool) -> anyhow::Result<String> {
    let sessions = to_read(folder)?.as_ref().map_or(Vec::new(), Store::sessions);
    let session = sessions.iter().find(|session| session.id == id).ok_or_else(|| unknown(id, folder))?;
    let chat = saved_chats::path(folder, id).filter(|path| path.exists());
    if json {
        let mut value = as_json(session);
        value["conversation"] = chat.map(|path| path.display().to_string()).into();
        return Ok(format!("{value:#}\n"));
    }
    let mut text = format!(
        "session   {id}\n\
         created   {}\n\
         used      {}\n\
         tokens    {}\n\
         states    {} that a prompt can start from, {}\n",
        ago(session.created),
        ago(session.used),
        session.tokens,
        session.states,
        sizes::bytes(session.exclusive_bytes),
    );
    if let Some(title) = &session.title {
        text.push_str(&format!("title     {title}\n"));
    }
    if let Some(chat) = chat {
        text.push_str(&format!("chat      {} (`ds4server chat --resume {id}`)\n", chat.display()));
    }
    Ok(text)
}

fn unknown(id: &str, folder: &Path) -> anyhow::Error {
    Usage(format!("there is no session {id} in {}; `ds4server sessions list` lists them", folder.display()))
        .into()
}

fn remove(store: &Store, id: &str) -> anyhow::Result<Removed> {
    if store.sessions().iter().all(|session| session.id != id) {
        return Err(unknown(id, store.path()));
    }
    let removed = store.remove_session(id)?;
    saved_chats::remove_without_session(store)?;
    Ok(removed)
}

/// Removes what was not used for `age`; all without one.
fn prune(store: &Store, age: Option<Duration>) -> anyhow::Result<Removed> {
    let unused_since = match age {
        Some(age) => now().saturating_sub(age.as_secs()),
        None => u64::MAX,
    };
    let removed = store.prune(Prune { unused_since: Some(unused_since), to_bytes: None })?;
    saved_chats::remove_without_session(store).context("cannot remove the conversations of the sessions")?;
    Ok(removed)
}

fn done(removed: Removed, what: &str, json: bool) -> String {
    if json {
        return format!("{:#}\n", json!({"states": removed.states, "bytes": removed.bytes}));
    }
    format!("{what}, {} are free again\n", sizes::bytes(removed.bytes))
}

fn as_json(session: &SessionInfo) -> Value {
    json!({
        "id": session.id,
        "title": session.title,
        "created": session.created,
        "used": session.used,
        "tokens": session.tokens,
        "states": session.states,
        "bytes": session.exclusive_bytes,
    })
}

/// A time in seconds since 1970, as people say it.
fn ago(time: u64) -> String {
    let seconds = now().saturating_sub(time);
    match seconds {
        0..60 => "just now".to_owned(),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..172_800 => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
