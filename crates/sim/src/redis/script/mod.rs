//! Scripts: the Lua interpreter, and the commands that load and run them.

mod convert;
mod msgpack;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use mlua::{Function, Lua, LuaOptions, LuaString, MultiValue, StdLib, Value};

use self::convert::{Fields, Words};
use super::commands::ScriptCommand;
use super::number;
use super::reply::{CommandResult, ErrorText, NOT_AN_INTEGER, OK, Reply};
use super::state::State;

/// The interpreter, and the scripts that it has compiled.
pub(super) struct Scripts {
    lua: Lua,
    /// Runs a script with its keys and arguments.
    runner: Function,
    fields: Rc<Fields>,
    /// By the SHA-1 in hexadecimal.
    compiled: BTreeMap<Vec<u8>, Compiled>,
}

struct Compiled {
    function: Function,
    /// Whether the server knows it. A script stays compiled when the server forgets it.
    is_loaded: bool,
}

impl Scripts {
    pub(super) fn new(state: &Rc<RefCell<State>>) -> mlua::Result<Self> {
        let lua = Lua::new_with(StdLib::TABLE | StdLib::STRING | StdLib::MATH, LuaOptions::new())?;
        let fields = Rc::new(Fields::new(&lua)?);
        let (server, names) = (Rc::clone(state), Rc::clone(&fields));
        let invoke = lua.create_function(move |lua, words: MultiValue| {
            let words = Words::new(&words)?;
            let words = words.slices();
            let reply = if words.is_empty() {
                Reply::Error("ERR Please specify at least one argument for this redis.call() call".into())
            } else {
                server.borrow_mut().run_in_script(&words).into()
            };
            names.to_lua(lua, reply)
        })?;
        let unpack = lua.create_function(|lua, text: LuaString| msgpack::unpack(lua, &text.as_bytes()))?;
        let sha = lua.create_function(|_, text: LuaString| Ok(sha1(&text.as_bytes())))?;
        let bootstrap = lua.load(include_str!("bootstrap.lua")).set_name("@bootstrap");
        let runner = bootstrap.call((invoke, unpack, sha))?;
        Ok(Self { lua, runner, fields, compiled: BTreeMap::new() })
    }

    /// Forgets all scripts. They stay compiled.
    pub(super) fn flush(&mut self) {
        for script in self.compiled.values_mut() {
            script.is_loaded = false;
        }
    }

    pub(super) fn execute(&mut self, command: ScriptCommand, words: &[&[u8]]) -> CommandResult {
        match command {
            ScriptCommand::Script => self.manage(words),
            ScriptCommand::Eval => {
                let sha = self.load(words[1])?;
                self.run(sha.as_bytes(), words)
            }
            ScriptCommand::EvalSha if words[1].iter().any(u8::is_ascii_uppercase) => {
                self.run(&words[1].to_ascii_lowercase(), words)
            }
            ScriptCommand::EvalSha => self.run(words[1], words),
        }
    }

    fn manage(&mut self, words: &[&[u8]]) -> CommandResult {
        let subcommand = words[1].to_ascii_lowercase();
        match (&*subcommand, &words[2..]) {
            (b"load", [source]) => self.load(source).map(Reply::bulk),
            (b"flush", _) => {
                self.flush();
                Ok(OK)
            }
            (b"exists", [_, ..]) => {
                let is_loaded = |sha: &&[u8]| self.find(&sha.to_ascii_lowercase()).is_ok();
                Ok(Reply::Array(words[2..].iter().map(|sha| Reply::Int(is_loaded(sha).into())).collect()))
            }
            _ => Err("ERR unknown subcommand or wrong number of arguments. Try SCRIPT HELP.".into()),
        }
    }

    /// Compiles a script unless it was compiled before. Returns its SHA-1 in hexadecimal.
    fn load(&mut self, source: &[u8]) -> Result<String, ErrorText> {
        let sha = sha1(source);
        if let Some(script) = self.compiled.get_mut(sha.as_bytes()) {
            script.is_loaded = true;
            return Ok(sha);
        }
        let chunk = self.lua.load(source).set_name("@user_script").set_mode(mlua::chunk::ChunkMode::Text);
        let function = chunk
            .into_function()
            .map_err(|why| ErrorText::from(format!("ERR Error compiling script (new function): {why}")))?;
        self.compiled.insert(sha.clone().into_bytes(), Compiled { function, is_loaded: true });
        Ok(sha)
    }

    fn find(&self, sha: &[u8]) -> Result<&Function, ErrorText> {
        let script = self.compiled.get(sha).filter(|script| script.is_loaded);
        script.map(|script| &script.function).ok_or("NOSCRIPT No matching script. Please use EVAL.".into())
    }

    fn run(&self, sha: &[u8], words: &[&[u8]]) -> CommandResult {
        let count = number::integer(words[2]).ok_or(NOT_AN_INTEGER)?;
        let Ok(count) = usize::try_from(count) else {
            return Err("ERR Number of keys can't be negative".into());
        };
        let Some((keys, arguments)) = words[3..].split_at_checked(count) else {
            return Err("ERR Number of keys can't be greater than number of args".into());
        };
        let function = self.find(sha)?;
        self.call(function, keys, arguments, sha).unwrap_or_else(|why| Err(format!("ERR {why}").into()))
    }

    fn call(
        &self,
        function: &Function,
        keys: &[&[u8]],
        arguments: &[&[u8]],
        sha: &[u8],
    ) -> mlua::Result<CommandResult> {
        let texts = |words: &[&[u8]]| {
            let texts = words.iter().map(|word| self.lua.create_string(word));
            self.lua.create_sequence_from(texts.collect::<mlua::Result<Vec<_>>>()?)
        };
        let (reply, error, status, was_raised): (Value, Option<LuaString>, Option<LuaString>, bool) =
            self.runner.call((function, texts(keys)?, texts(arguments)?))?;
        if let Some(error) = error {
            let error = error.to_string_lossy();
            let sha = String::from_utf8_lossy(sha);
            let place = if was_raised { format!(" script: {sha}, on @user_script.") } else { String::new() };
            return Ok(Err(format!("{error}{place}").into()));
        }
        if let Some(status) = status {
            return Ok(Ok(Reply::Status(status.to_string_lossy().into())));
        }
        match &reply {
            Value::Table(table) => self.fields.items(table).map(Ok),
            other => self.fields.to_reply(other).map(Ok),
        }
    }
}

fn sha1(text: &[u8]) -> String {
    sha1_smol::Sha1::from(text).digest().to_string()
}
