// Shared by both pages: the service's address, the conversation, a form for each question. Text is set as text, never as markup.
const byId = (id) => document.getElementById(id);

export const settings = () => ({
  url: byId("url").value.replace(/\/$/, ""),
  headers: { Authorization: `Bearer ${byId("token").value}`, "Content-Type": "application/json" },
});

export const make = (name, text = "", fields = {}) => Object.assign(document.createElement(name), { textContent: text }, fields);

// Shows a message; the same id again replaces it.
export const say = (id, who, text) => {
  const item = byId(id) || byId("said").appendChild(make("li", "", { id }));
  item.replaceChildren(make("span", `${who}: `, { className: "who" }), text);
};

export const showStatus = (text) => byId("status").replaceChildren(text);
export const showProblem = (text) => byId("problem").replaceChildren(text);

// Shows a question with its options; `answer` gets the choice or the text.
export const ask = (id, text, options, isSecret, answer) => {
  const form = make("form", "", { id: `ask-${id}` });
  const field = form.appendChild(make("fieldset"));
  field.append(make("legend", text));
  const send = (value) => {
    form.remove();
    answer(value);
  };
  for (const label of options) {
    field.append(make("button", label, { type: "button", onclick: () => send(label) }));
  }
  const own = make("input", "", { type: isSecret ? "password" : "text", required: true, autocomplete: "off" });
  const named = make("label", options.length ? "Or in your own words" : "Your answer");
  named.append(own);
  field.append(named, make("button", "Answer"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(own.value);
  });
  byId("questions").append(form);
};

export const forgetQuestions = (isOpen = () => false) => {
  for (const form of [...byId("questions").children]) if (!isOpen(form.id.slice(4))) form.remove();
};
export const isAsked = (id) => byId(`ask-${id}`) !== null;

// Calls `begin` with each task, and shows errors.
export const whenStarted = (begin) =>
  byId("start").addEventListener("submit", async (event) => {
    event.preventDefault();
    const task = byId("task").value;
    byId("task").value = "";
    await attempt(() => begin(task));
  });

export const attempt = async (work) => {
  showProblem("");
  try {
    await work();
  } catch (error) {
    showProblem(error.message);
  }
};
