//! Why a prompt could not use a stored state: a fixed list, for the log, for metrics and for clients.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Divergence;

/// Why no stored state served a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum MissReason {
    /// Nothing stored begins like this prompt.
    NewSession,
    /// The closest stored state has another token at this place.
    DivergedAt {
        /// Index of the first token that differs.
        token: usize,
    },
    /// It was computed by another model.
    ModelChanged,
    /// It was computed under another tokenizer or chat template.
    TemplateChanged,
    /// It was computed under other settings.
    SettingsChanged,
    /// It was there and was removed to make room.
    Evicted,
    /// Stored states contain all of this prompt, but none of them ends inside it, and a recurrent state cannot be
    /// rewound.
    NoSnapshotBefore {
        /// Tokens that would have been of use.
        token: usize,
    },
    /// Storing is turned off.
    Disabled,
    /// It was there and its file was damaged.
    Corrupt,
}

impl MissReason {
    /// Of states of the same model and settings, by the one that shares the most tokens with the prompt.
    pub(crate) fn of_closest<Id>(closest: Option<Divergence<Id>>) -> Self {
        match closest {
            None => Self::NewSession,
            Some(found) if found.differs => Self::DivergedAt { token: found.common },
            Some(found) => Self::NoSnapshotBefore { token: found.common },
        }
    }

    /// The stable name.
    pub fn name(self) -> &'static str {
        match self {
            Self::NewSession => "new_session",
            Self::DivergedAt { .. } => "diverged_at",
            Self::ModelChanged => "model_changed",
            Self::TemplateChanged => "template_changed",
            Self::SettingsChanged => "settings_changed",
            Self::Evicted => "evicted",
            Self::NoSnapshotBefore { .. } => "no_snapshot_before",
            Self::Disabled => "disabled",
            Self::Corrupt => "corrupt",
        }
    }

    /// Where the prompt and the closest stored state part, for the reasons that know.
    pub fn token(self) -> Option<usize> {
        match self {
            Self::DivergedAt { token } | Self::NoSnapshotBefore { token } => Some(token),
            _ => None,
        }
    }

    /// The one that says more, when two places were asked (memory and disk).
    #[must_use]
    pub fn or_more_telling(self, other: Self) -> Self {
        if other.weight() > self.weight() { other } else { self }
    }

    /// Trouble before history before position; of two positions the later one.
    fn weight(self) -> (u8, usize) {
        let class = match self {
            Self::Disabled => 0,
            Self::NewSession => 1,
            Self::DivergedAt { .. } => 2,
            Self::NoSnapshotBefore { .. } => 3,
            Self::SettingsChanged => 4,
            Self::TemplateChanged => 5,
            Self::ModelChanged => 6,
            Self::Evicted => 7,
            Self::Corrupt => 8,
        };
        (class, self.token().unwrap_or(0))
    }
}

impl fmt::Display for MissReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.token() {
            Some(token) => write!(f, "{} {token}", self.name()),
            None => f.write_str(self.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [(MissReason, &str); 9] = [
        (MissReason::NewSession, "new_session"),
        (MissReason::DivergedAt { token: 7 }, "diverged_at"),
        (MissReason::ModelChanged, "model_changed"),
        (MissReason::TemplateChanged, "template_changed"),
        (MissReason::SettingsChanged, "settings_changed"),
        (MissReason::Evicted, "evicted"),
        (MissReason::NoSnapshotBefore { token: 9 }, "no_snapshot_before"),
        (MissReason::Disabled, "disabled"),
        (MissReason::Corrupt, "corrupt"),
    ];

    #[test]
    fn names_are_stable_and_equal_in_json() {
        for (reason, name) in ALL {
            assert_eq!(reason.name(), name);
            let json = serde_json::to_value(reason).unwrap();
            assert_eq!(json["reason"], name);
            assert_eq!(serde_json::from_value::<MissReason>(json).unwrap(), reason);
        }
    }

    #[test]
    fn a_position_is_shown() {
        assert_eq!(MissReason::DivergedAt { token: 4096 }.to_string(), "diverged_at 4096");
        assert_eq!(MissReason::Corrupt.to_string(), "corrupt");
    }

    #[test]
    fn the_more_telling_reason_wins_from_both_sides() {
        let near = MissReason::DivergedAt { token: 3 };
        let far = MissReason::DivergedAt { token: 30 };
        for (less, more) in [(near, far), (MissReason::NewSession, near), (far, MissReason::Corrupt)] {
            assert_eq!(less.or_more_telling(more), more);
            assert_eq!(more.or_more_telling(less), more);
        }
    }
}
