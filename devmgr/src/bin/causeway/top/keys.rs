//! What keys of the live view mean.

use ratatui::crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers};

use super::view::Wish;

/// Rows of a page.
const PAGE: isize = 10;

/// What somebody wants who does that, if anything.
pub(super) fn wish(event: &Event) -> Option<Wish> {
    let Event::Key(key) = event else {
        return None;
    };
    if key.kind == KeyEventKind::Release {
        return None;
    }
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Wish::Quit),
        KeyCode::Char('q') | KeyCode::Esc => Some(Wish::Quit),
        KeyCode::Tab => Some(Wish::NextPane),
        KeyCode::Down | KeyCode::Char('j') => Some(Wish::Scroll(1)),
        KeyCode::Up | KeyCode::Char('k') => Some(Wish::Scroll(-1)),
        KeyCode::PageDown => Some(Wish::Scroll(PAGE)),
        KeyCode::PageUp => Some(Wish::Scroll(-PAGE)),
        KeyCode::Home => Some(Wish::First),
        KeyCode::End => Some(Wish::Last),
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
        assert!(quits.iter().all(|event| wish(event) == Some(Wish::Quit)));
        assert_eq!(wish(&key(c, KeyModifiers::NONE)), None);
        assert_eq!(wish(&Event::Resize(1, 1)), None);
        let up = wish(&key(KeyCode::PageUp, KeyModifiers::NONE));
        assert_eq!(up, Some(Wish::Scroll(-PAGE)));
    }
}
