//! The keys of the live view.

use ratatui::crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers};

use super::view::KeyAction;

/// Number of rows of a page.
const PAGE: isize = 10;

/// The action for a terminal event, if it has one.
pub(super) fn key_action(event: &Event) -> Option<KeyAction> {
    let Event::Key(key) = event else {
        return None;
    };
    if key.kind == KeyEventKind::Release {
        return None;
    }
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
            Some(KeyAction::Quit)
        }
        KeyCode::Char('q') | KeyCode::Esc => Some(KeyAction::Quit),
        KeyCode::Tab => Some(KeyAction::NextPane),
        KeyCode::Down | KeyCode::Char('j') => Some(KeyAction::Scroll(1)),
        KeyCode::Up | KeyCode::Char('k') => Some(KeyAction::Scroll(-1)),
        KeyCode::PageDown => Some(KeyAction::Scroll(PAGE)),
        KeyCode::PageUp => Some(KeyAction::Scroll(-PAGE)),
        KeyCode::Home => Some(KeyAction::First),
        KeyCode::End => Some(KeyAction::Last),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::crossterm::event::KeyEvent;

    #[test]
    fn q_and_control_c_quit_and_c_does_not() {
        let key = |code, modifiers| Event::Key(KeyEvent::new(code, modifiers));
        let c = KeyCode::Char('c');
        let quits = [
            key(KeyCode::Char('q'), KeyModifiers::NONE),
            key(c, KeyModifiers::CONTROL),
        ];
        assert!(
            quits
                .iter()
                .all(|event| key_action(event) == Some(KeyAction::Quit))
        );
        assert_eq!(key_action(&key(c, KeyModifiers::NONE)), None);
        assert_eq!(key_action(&Event::Resize(1, 1)), None);
        let up = key_action(&key(KeyCode::PageUp, KeyModifiers::NONE));
        assert_eq!(up, Some(KeyAction::Scroll(-PAGE)));
    }
}
