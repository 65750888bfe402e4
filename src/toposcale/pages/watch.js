// The watch page: the explorer, whose parts come from a server that follows a training. What is new is drawn every second.

const INTERVAL_MS = 1000;

async function fetchPart(name) {
  return (await fetch("data/" + name)).json();
}

/** Wait until the training that is followed has a model to show. */
async function firstModel() {
  while (!run.models.length) {
    $("#state").textContent = run.state;
    await new Promise((done) => setTimeout(done, INTERVAL_MS));
    run = await part("run");
  }
}

/** Ask the server again and again; what is new is drawn. */
async function follow() {
  const version = run.version;
  try {
    run = await part("run");
    $("#state").textContent = run.state;
    if (run.version !== version) {
      loaded = new Map();
      fillModels();
      await change();
      document.body.dataset.version = run.version;
    }
  } catch {
    $("#state").textContent = "The server has stopped. The page shows the last data it sent.";
  }
  setTimeout(follow, INTERVAL_MS);
}
