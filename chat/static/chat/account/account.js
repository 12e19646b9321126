// @ts-check
/**
 * Passkeys on the pages of signing in and of one's account: each form `data-passkey` gets a credential before it is sent.
 *
 * Browsers offer passkeys over HTTPS and at http://localhost alone; without them the forms stay hidden.
 */

const hasPasskeys = window.isSecureContext && typeof window.PublicKeyCredential?.parseCreationOptionsFromJSON === "function";

/**
 * @param {string} kind
 * @param {HTMLFormElement} form
 */
async function credentialOf(kind, form) {
  const data = kind === "sign-in" ? await challenge(form.action) : JSON.parse(form.querySelector("script")?.textContent ?? "{}");
  if (kind === "create") {
    const options = data.creation_options.publicKey;
    const alone = /** @type {HTMLInputElement | null} */ (form.elements.namedItem("passwordless"))?.checked ?? false;
    options.authenticatorSelection = {
      ...options.authenticatorSelection,
      residentKey: alone ? "required" : "discouraged",
      requireResidentKey: alone,
      ...(alone ? { userVerification: "required" } : {}),
    };
    return navigator.credentials.create({ publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(options) });
  }
  return navigator.credentials.get({ publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(data.request_options.publicKey) });
}

/** @param {string} address */
async function challenge(address) {
  const answer = await fetch(address, { headers: { Accept: "application/json" } });
  if (!answer.ok) throw new Error(`the challenge was answered with ${answer.status}`);
  return answer.json();
}

/** @param {HTMLFormElement} form */
function connect(form) {
  const button = form.querySelector("[data-passkey-button]");
  const problem = /** @type {HTMLElement | null} */ (form.querySelector("[data-passkey-problem]"));
  form.hidden = false;
  form.addEventListener("submit", (event) => {
    if (!(/** @type {HTMLInputElement} */ (form.elements.namedItem("credential")).value)) event.preventDefault();
  });
  button?.addEventListener("click", async () => {
    if (problem) problem.hidden = true;
    try {
      const credential = /** @type {PublicKeyCredential} */ (await credentialOf(form.dataset.passkey ?? "", form));
      /** @type {HTMLInputElement} */ (form.elements.namedItem("credential")).value = JSON.stringify(credential.toJSON());
      form.submit();
    } catch {
      if (problem) problem.hidden = false;
    }
  });
}

for (const note of document.querySelectorAll("[data-passkey-missing]")) /** @type {HTMLElement} */ (note).hidden = hasPasskeys;
if (hasPasskeys) for (const form of document.querySelectorAll("form[data-passkey]")) connect(/** @type {HTMLFormElement} */ (form));

for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", async () => {
    const text = /** @type {HTMLElement} */ (button).dataset.copy ?? "";
    await navigator.clipboard?.writeText(text);
  });
}
