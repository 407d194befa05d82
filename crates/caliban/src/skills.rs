//! Skills: instructions for special tasks, in `.caliban/skills/NAME/SKILL.md` and `.claude/skills/NAME/SKILL.md`. The model
//! is told the name and what it is for; the body comes when it asks for it.

use std::{path::PathBuf, sync::Arc};

use caliban_core::{
    access::Access,
    cap::{self, Cap},
    inert,
    message::ToolSpec,
};
use caliban_settings::definitions::DefinitionFile;
use caliban_tools::{BoxFuture, CallContext, Tool, ToolOutput};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{settings::Loaded, trust::DefinitionKind};

/// The tool's name.
pub(crate) const TOOL: &str = "Skill";
/// Characters of one description that the model is told.
const ABOUT_CHARACTERS: usize = 300;
/// Characters of all of them.
const ALL_CHARACTERS: usize = 6_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Skill {
    /// Its name: that of its directory, unless the file says another.
    pub name: String,
    /// When to use it.
    pub about: String,
    /// Where its further files are.
    pub directory: PathBuf,
    body: String,
}

/// The skills of the repo, when it is trusted, and the user's own; of two with one name the first wins. The second list says
/// which files are none, and why.
pub(crate) fn all(loaded: &Loaded) -> (Vec<Skill>, Vec<String>) {
    parse_all(&loaded.definitions(DefinitionKind::Skills))
}

/// The skills in these files, and which are none.
pub(crate) fn parse_all(files: &[DefinitionFile]) -> (Vec<Skill>, Vec<String>) {
    let (mut skills, mut problems) = (Vec::<Skill>::new(), Vec::new());
    for file in files {
        match parse(file) {
            Ok(skill) if skills.iter().all(|other| other.name != skill.name) => skills.push(skill),
            Ok(_) => {}
            Err(problem) => problems.push(format!("{}: {problem}", file.path.display())),
        }
    }
    (skills, problems)
}

fn parse(file: &DefinitionFile) -> Result<Skill, String> {
    let definition = file.definition()?;
    let directory = file.path.parent().map(ToOwned::to_owned).unwrap_or_default();
    let folder = directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    // A file without a name is called like itself.
    let name = if definition.name == "SKILL" { folder } else { definition.name };
    if definition.description.is_empty() {
        return Err("a skill needs a `description` that says when to use it".to_owned());
    }
    Ok(Skill { name, about: definition.description, directory, body: definition.role })
}

/// The tool by which the model asks for a skill; none when there is no skill.
pub(crate) fn tool(skills: &[Skill]) -> Option<Arc<dyn Tool>> {
    (!skills.is_empty()).then(|| Arc::new(SkillTool::new(skills)) as Arc<dyn Tool>)
}

struct SkillTool {
    spec: ToolSpec,
    skills: Vec<Skill>,
}

#[derive(Deserialize)]
struct SkillInput {
    #[serde(alias = "skill")]
    name: String,
}

impl SkillTool {
    fn new(skills: &[Skill]) -> Self {
        let mut description =
            "Get the instructions for a special task, before you begin with it. There are:".to_owned();
        for skill in skills {
            let about = inert::line(&skill.about).into_owned();
            let about = cap::middle(&about, Cap::Chars(ABOUT_CHARACTERS)).replace('\n', " ");
            let line = format!("\n- {}: {about}", inert::line(&skill.name));
            if description.chars().count() + line.chars().count() > ALL_CHARACTERS {
                description.push_str("\n- …");
                break;
            }
            description.push_str(&line);
        }
        let spec = ToolSpec {
            name: TOOL.to_owned(),
            description,
            input_schema: json!({"type": "object", "properties": {"name": {"type": "string"}},
                "required": ["name"]}),
        };
        Self { spec, skills: skills.to_vec() }
    }

    fn find(&self, input: &Value) -> Result<&Skill, String> {
        let SkillInput { name } =
            SkillInput::deserialize(input).map_err(|error| format!("{TOOL}: {error}"))?;
        self.skills.iter().find(|skill| skill.name == name).ok_or_else(|| {
            let names: Vec<&str> = self.skills.iter().map(|skill| skill.name.as_str()).collect();
            format!("there is no skill {name:?}; there are {}", names.join(", "))
        })
    }
}

impl Tool for SkillTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn access(&self, input: &Value) -> Result<Vec<Access>, String> {
        self.find(input).map(|_| vec![Access::Nothing])
    }

    fn call<'a>(&'a self, input: Value, _call: CallContext<'a>) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move {
            match self.find(&input) {
                Ok(skill) => {
                    let text =
                        format!("[files of this skill are in {}]\n{}", skill.directory.display(), skill.body);
                    ToolOutput::text(text, format!("skill {}", inert::line(&skill.name)))
                }
                Err(error) => ToolOutput::error(error),
            }
        })
    }
}
