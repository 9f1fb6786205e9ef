/** Waiting for something that connections bring about. */

/** Wakes those who wait whenever something has changed. */
export class Condition {
  readonly #waiting = new Set<() => void>();

  /** Says that something has changed. */
  notify(): void {
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const tell of waiting) tell();
  }

  /** Waits until a condition holds; false if it does not in time. */
  async until(holds: () => boolean, ms = Infinity, signal?: AbortSignal): Promise<boolean> {
    const deadline = Date.now() + ms;
    while (!holds()) {
      signal?.throwIfAborted();
      const left = deadline - Date.now();
      if (left <= 0) return false;
      await this.#change(left, signal);
    }
    return true;
  }

  #change(ms: number, signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve) => {
      const timer = ms < 2 ** 31 ? setTimeout(() => tell(), ms) : undefined;
      const tell = () => {
        clearTimeout(timer);
        this.#waiting.delete(tell);
        signal?.removeEventListener("abort", tell);
        resolve();
      };
      this.#waiting.add(tell);
      signal?.addEventListener("abort", tell);
    });
  }
}
