//! `man`: the manual page, or the pages of all commands, generated from the definition of the command line.

use clap::CommandFactory;
use serde_json::json;

use crate::answer::VerbAnswer;
use crate::args::{Cli, ManArgs};
use crate::failure::{Failure, shown};

/// The section about how little has to be typed.
const SHORT_FORM: &str = r#".SH "SHORTEST SAFE FORM"
An id may be shortened to any beginning of it, of four characters or more, that fits no other. In place of the id of an agent or a
member its name does, when nobody else in the session has it:
.PP
.nf
cafleet \-\-session\-id 3f9c message poll \-\-agent\-id 7a10
cafleet \-\-session\-id 3f9c message send \-\-agent\-id 7a10 \-\-to reviewer \-\-text "Done?"
.fi
.PP
Always write the two ids out, in this order: \-\-session\-id before the command, \-\-agent\-id behind it. No variable of the shell
stands for them: rules that allow a command compare it as it is written, and one with $ID in it is asked about each time. A rule for
the whole session needs the whole session id; a shortened one is another text.
"#;

pub(crate) fn run(args: &ManArgs) -> Result<VerbAnswer, Failure> {
    let failed = |error: std::io::Error| {
        let place = args.dir.as_deref().map(|dir| dir.display().to_string()).unwrap_or_default();
        Failure::internal(format!("cannot write the manual pages to {}: {error}", shown(&place)))
    };
    let command = Cli::command();
    if let Some(dir) = &args.dir {
        std::fs::create_dir_all(dir).map_err(failed)?;
        clap_mangen::generate_to(command, dir).map_err(failed)?;
        let place = dir.display().to_string();
        return Ok(VerbAnswer::new(
            format!("Manual pages are in {}", shown(&place)),
            json!({"directory": place}),
        ));
    }
    let page = page(command).map_err(failed)?;
    Ok(VerbAnswer::new(page.trim_end(), json!({"page": page})))
}

fn page(command: clap::Command) -> std::io::Result<String> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    page.extend_from_slice(SHORT_FORM.as_bytes());
    Ok(String::from_utf8_lossy(&page).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_shortest_form_that_rules_still_recognise() {
        let page = page(Cli::command()).expect("a page");
        assert!(page.contains(".SH \"SHORTEST SAFE FORM\"") && page.contains("\\-\\-to reviewer"), "{page}");
    }
}
